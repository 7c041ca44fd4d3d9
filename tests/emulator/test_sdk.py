"""Google's own SDK against the emulator, with the options of its documentation."""

from __future__ import annotations

import sys
import time
import warnings

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


def custom_job(sdk, name, code, **options):
    container = {"image_uri": "image", "command": [sys.executable, "-c", code]}
    machine = {"machine_type": "n1-standard-4"}
    pool = {"machine_spec": machine, "replica_count": 1, "container_spec": container}
    return sdk.CustomJob(display_name=name, worker_pool_specs=[pool], **options)


def test_a_job_is_run_listed_and_deleted(sdk):
    job = custom_job(sdk, "good", "", labels={"team": "blue"})
    job.run()
    assert job.end_time >= job.start_time >= job.create_time
    [listed] = sdk.CustomJob.list(filter='display_name="good" AND labels.team="blue"')
    assert (listed.state.name, listed.labels) == ("JOB_STATE_SUCCEEDED", {"team": "blue"})
    listed.delete()
    assert sdk.CustomJob.list(filter='display_name="good"') == []


def test_a_job_that_exits_7_ends_failed_and_the_sdk_raises(sdk):
    job = custom_job(sdk, "bad", "raise SystemExit(7)")
    with pytest.raises(RuntimeError):
        job.run()
    assert job.state.name == "JOB_STATE_FAILED"
    while not (error := sdk.CustomJob.get(job.resource_name).error).code:
        time.sleep(0.1)  # it appears some time later
    assert "The replica workerpool0-0 exited with a non-zero status of 7." in error.message


def test_a_job_is_cancelled(sdk):
    job = custom_job(sdk, "cancelled", "import time; time.sleep(600)")
    job.submit()
    job.cancel()
    while job.state.name != "JOB_STATE_CANCELLED":
        time.sleep(0.1)


def test_a_job_runs_on_a_persistent_resource_until_it_is_deleted(sdk):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from google.cloud.aiplatform import persistent_resource

    machines = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1}
    warm = persistent_resource.PersistentResource.create("warm", [machines])
    assert warm.state.name == "RUNNING"
    job = custom_job(sdk, "warm", "", persistent_resource_id="warm")
    job.run()
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    warm.delete()
    assert persistent_resource.PersistentResource.list() == []


def test_a_tuning_job_s_trials_are_run_and_measured(sdk):
    rates = sdk.hyperparameter_tuning.DiscreteParameterSpec(values=[0.25, 0.5], scale=None)
    job = sdk.HyperparameterTuningJob(
        display_name="tuned",
        custom_job=custom_job(sdk, "trial", HYPERTUNE),
        metric_spec={"accuracy": "maximize"},
        parameter_spec={"rate": rates},
        max_trial_count=2,
        parallel_trial_count=2,
        search_algorithm="grid",
    )
    job.run()
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    results = {
        (trial.parameters[0].value, trial.final_measurement.metrics[0].value)
        for trial in job.trials
    }
    assert results == {(0.25, 0.75), (0.5, 0.5)}
    assert {trial.final_measurement.step_count for trial in job.trials} == {7}
