"""Google's own SDK, unchanged, against the emulator as a process of its own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from google.auth.credentials import AnonymousCredentials

pytestmark = pytest.mark.slow

PROJECT, REGION = "my-project", "us-central1"
HYPERTUNE = """\
import json, os, sys
rate = float(sys.argv[1].removeprefix("--rate="))
with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
    json.dump({"timestamp": 1.0, "trial": "1", "accuracy": 1 - rate, "global_step": "7"}, file)
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """An emulator that runs processes."""
    with subprocess.Popen(
        [sys.executable, "-m", "distlaunch", "emulator", "--port=0", "--run-with=process"],
        cwd=tmp_path_factory.mktemp("project"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as emulator:
        url = emulator.stdout.readline().strip()
        yield url
        emulator.send_signal(signal.SIGINT)
        assert emulator.wait(60) == 0


@pytest.fixture(scope="module")
def sdk(endpoint):
    """The SDK, with the options of its documentation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDK's own, of what it imports
        from google.cloud import aiplatform
    aiplatform.init(
        project=PROJECT,
        location=REGION,
        staging_bucket="gs://staging",
        credentials=AnonymousCredentials(),
        api_endpoint=endpoint,
        api_transport="rest",
    )
    return aiplatform


def pools(code, workers=0):
    pool = {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "container_spec": {
            "image_uri": "us-docker.pkg.dev/my-project/images/trainer",
            "command": [sys.executable, "-c", code],
            "args": [],
            "env": [{"name": "COLOUR", "value": "green"}],
        },
    }
    return [pool, pool | {"replica_count": workers}] if workers else [pool]


@pytest.fixture(scope="module")
def ended(sdk):
    """Jobs that the SDK has run to their ends, all at once as it looks every five seconds."""
    good = sdk.CustomJob(
        display_name="good",
        worker_pool_specs=pools(
            "import os; print('in', os.environ['COLOUR'], os.environ['AIP_MODEL_DIR'])", workers=2
        ),
        base_output_dir="gs://staging/good",
        labels={"team": "blue"},
    )
    bad = sdk.CustomJob(
        display_name="bad",
        worker_pool_specs=pools("import sys; print('oh', file=sys.stderr); sys.exit(7)"),
    )
    cancelled = sdk.CustomJob(
        display_name="cancelled", worker_pool_specs=pools("import time; time.sleep(600)")
    )
    tuned = sdk.HyperparameterTuningJob(
        display_name="tuned",
        custom_job=sdk.CustomJob(display_name="trial", worker_pool_specs=pools(HYPERTUNE)),
        metric_spec={"accuracy": "maximize"},
        parameter_spec={
            "rate": sdk.hyperparameter_tuning.DiscreteParameterSpec(values=[0.25, 0.5], scale=None)
        },
        max_trial_count=2,
        parallel_trial_count=2,
        search_algorithm="grid",
    )

    def cancel():
        cancelled.submit()
        cancelled.cancel()
        with contextlib.suppress(RuntimeError):
            cancelled._block_until_complete()

    with ThreadPoolExecutor(4) as threads:
        runs = {
            "good": threads.submit(good.run),
            "bad": threads.submit(bad.run),
            "tuned": threads.submit(tuned.run),
            "cancelled": threads.submit(cancel),
        }
        problems = {name: run.exception() for name, run in runs.items()}
    jobs = {"good": good, "bad": bad, "tuned": tuned, "cancelled": cancelled}
    return {name: (job, problems[name]) for name, job in jobs.items()}


def entries(endpoint, job, *more):
    """Return what Cloud Logging's entries:list returns for a job."""
    number = job.resource_name.rpartition("/")[2]
    words = ['resource.type="ml_job"', f'resource.labels.job_id="{number}"', *more]
    body = {"resourceNames": [f"projects/{PROJECT}"], "filter": " AND ".join(words)}
    answer = requests.post(f"{endpoint}/v2/entries:list", json=body, timeout=60)
    assert answer.ok, answer.text
    return answer.json().get("entries", [])


def test_a_job_is_run_to_its_end_and_its_output_found_in_the_logs(endpoint, ended):
    job, problem = ended["good"]
    assert problem is None
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert job.end_time >= job.start_time >= job.create_time
    assert job.labels == {"team": "blue"}
    messages = [
        entry["jsonPayload"]["message"]
        for entry in entries(endpoint, job, 'resource.labels.task_name="workerpool0-0"')
    ]
    (line,) = messages
    assert line.startswith("in green /")
    assert line.endswith("/staging/good/model/")
    tasks = {entry["resource"]["labels"]["task_name"] for entry in entries(endpoint, job)}
    assert {"service", "workerpool0-0"} <= tasks


def test_a_job_that_exits_7_ends_failed_and_the_sdk_raises(endpoint, ended):
    job, problem = ended["bad"]
    assert isinstance(problem, RuntimeError)
    assert job.state.name == "JOB_STATE_FAILED"
    assert "The replica workerpool0-0 exited with a non-zero status of 7." in str(problem)
    assert job.error.code == 3
    errors = entries(endpoint, job, "severity>=ERROR", 'resource.labels.task_name!="service"')
    assert [entry["jsonPayload"]["message"] for entry in errors] == ["oh"]


def test_a_cancelled_job_ends_cancelled(ended):
    job, _ = ended["cancelled"]
    assert job.state.name == "JOB_STATE_CANCELLED"


def test_a_tuning_job_s_trials_are_run_and_measured(ended):
    job, problem = ended["tuned"]
    assert problem is None
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert {
        (trial.parameters[0].value, trial.final_measurement.metrics[0].value)
        for trial in job.trials
    } == {(0.25, 0.75), (0.5, 0.5)}
    assert {trial.final_measurement.step_count for trial in job.trials} == {7}


def test_jobs_are_listed_found_and_deleted(sdk, ended):
    job, _ = ended["good"]
    again = sdk.CustomJob.get(job.resource_name)
    assert again.display_name == "good"
    (only,) = sdk.CustomJob.list(filter='display_name="good" AND labels.team="blue"')
    assert only.resource_name == job.resource_name
    again.delete()
    assert sdk.CustomJob.list(filter='display_name="good"') == []
