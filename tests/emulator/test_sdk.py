"""Google's own SDK against the emulator, with the options of its documentation."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.auth.credentials import AnonymousCredentials

from distlaunch.emulator.emulator import Emulator

pytestmark = pytest.mark.slow

HYPERTUNE = """\
import json, os, sys
rate = float(sys.argv[1].removeprefix("--rate="))
with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
    json.dump({"timestamp": 1.0, "trial": "1", "accuracy": 1 - rate, "global_step": "7"}, file)
"""


@pytest.fixture(scope="module")
def sdk():
    """The SDK, which looks at jobs more often than every five seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDK's own, of what it imports
        from google.cloud import aiplatform
    with Emulator() as emulator, pytest.MonkeyPatch.context() as patch:
        patch.setattr(aiplatform.jobs, "_JOB_WAIT_TIME", 0.2)
        aiplatform.init(
            project="my-project",
            location="us-central1",
            staging_bucket="gs://staging",
            credentials=AnonymousCredentials(),
            api_endpoint=emulator.url,
            api_transport="rest",
        )
        yield aiplatform


@pytest.fixture(scope="module")
def ended(sdk):
    """Jobs that the SDK has run to their ends at the same time, and what it raised."""

    def custom_job(name, code, **options):
        container = {"image_uri": "image", "command": [sys.executable, "-c", code]}
        pool = {
            "machine_spec": {"machine_type": "n1-standard-4"},
            "replica_count": 1,
            "container_spec": container,
        }
        return sdk.CustomJob(display_name=name, worker_pool_specs=[pool], **options)

    def cancel():
        jobs["cancelled"].submit()
        jobs["cancelled"].cancel()
        with contextlib.suppress(RuntimeError):
            jobs["cancelled"]._block_until_complete()

    rates = sdk.hyperparameter_tuning.DiscreteParameterSpec(values=[0.25, 0.5], scale=None)
    jobs = {
        "good": custom_job("good", "", labels={"team": "blue"}),
        "bad": custom_job("bad", "raise SystemExit(7)"),
        "cancelled": custom_job("cancelled", "import time; time.sleep(600)"),
        "tuned": sdk.HyperparameterTuningJob(
            display_name="tuned",
            custom_job=custom_job("trial", HYPERTUNE),
            metric_spec={"accuracy": "maximize"},
            parameter_spec={"rate": rates},
            max_trial_count=2,
            parallel_trial_count=2,
            search_algorithm="grid",
        ),
    }
    with ThreadPoolExecutor(4) as threads:
        runs = {
            name: threads.submit(cancel if name == "cancelled" else job.run)
            for name, job in jobs.items()
        }
    return {name: (job, runs[name].exception()) for name, job in jobs.items()}


def test_a_job_that_exits_7_ends_failed_and_the_sdk_raises(sdk, ended):
    job, problem = ended["bad"]
    assert isinstance(problem, RuntimeError)
    assert job.state.name == "JOB_STATE_FAILED"
    deadline = time.monotonic() + 60
    while not (error := sdk.CustomJob.get(job.resource_name).error).code:  # it appears later
        assert time.monotonic() < deadline
    assert "The replica workerpool0-0 exited with a non-zero status of 7." in error.message


def test_a_cancelled_job_ends_cancelled(ended):
    assert ended["cancelled"][0].state.name == "JOB_STATE_CANCELLED"


def test_a_tuning_job_s_trials_are_run_and_measured(ended):
    job, problem = ended["tuned"]
    assert problem is None
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert {
        (trial.parameters[0].value, trial.final_measurement.metrics[0].value)
        for trial in job.trials
    } == {(0.25, 0.75), (0.5, 0.5)}
    assert {trial.final_measurement.step_count for trial in job.trials} == {7}


def test_a_job_is_run_listed_read_and_deleted(sdk, ended):
    job, problem = ended["good"]
    assert problem is None
    assert job.end_time >= job.start_time >= job.create_time
    [listed] = sdk.CustomJob.list(filter='display_name="good" AND labels.team="blue"')
    assert listed.resource_name == job.resource_name
    read = sdk.CustomJob.get(job.resource_name)
    assert (read.state.name, read.labels) == ("JOB_STATE_SUCCEEDED", {"team": "blue"})
    read.delete()
    assert sdk.CustomJob.list(filter='display_name="good"') == []
