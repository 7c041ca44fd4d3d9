"""A job as Google's JSON has its state, error and pages, and why it has ended."""

from __future__ import annotations

import pytest

from distlaunch.engines.vertex.job_resource import is_preempted, read_status

NAME = "projects/123/locations/europe-west4/customJobs/77"


def test_state_error_and_page_of_a_job():
    error = {"code": 3, "message": "The replica\nexited."}
    board = {"tensorboard": "projects/123/locations/europe-west4/tensorboards/4"}
    job = {"name": NAME, "state": "JOB_STATE_FAILED", "error": error}
    status = read_status(job, "my-project")
    assert (status.id, status.state, status.error) == ("77", "FAILED", "The replica exited.")
    assert status.console == (
        "https://console.cloud.google.com/agent-platform/locations/europe-west4/training/77"
        "?project=my-project"
    )
    assert status.tensorboard is None
    assert read_status(job | {"jobSpec": board}, "p").tensorboard == (
        "https://europe-west4.tensorboard.googleusercontent.com/experiment/"
        "projects+123+locations+europe-west4+tensorboards+4+experiments+77"
    )
    assert read_status({"name": NAME}, "p").state == "UNSPECIFIED"


STOCKOUT = "Resources are insufficient in region: us-central1. Please try a different region."
STARTED = "2026-11-23T10:00:00Z"
QUOTA = "The following quota metrics exceed quota limits: custom_model_training_cpus"


@pytest.mark.parametrize(
    ("state", "message", "more", "expected"),
    [
        ("FAILED", STOCKOUT, {}, True),
        ("FAILED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", {}, True),
        ("EXPIRED", "", {}, True),
        ("FAILED", STOCKOUT, {"startTime": STARTED}, False),
        ("FAILED", QUOTA, {}, False),
        ("FAILED", "The replica workerpool0-0 exited with a non-zero status of 1.", {}, False),
        ("CANCELLED", STOCKOUT, {}, False),
        ("PENDING", "", {}, False),
    ],
)
def test_only_a_job_that_never_had_machines_is_a_stockout(state, message, more, expected):
    job = {"name": NAME, "state": f"JOB_STATE_{state}", "error": {"message": message}, **more}
    assert read_status(job, "p").is_stockout is expected


@pytest.mark.parametrize(
    ("state", "message", "strategy", "start", "expected"),
    [
        ("FAILED", STOCKOUT, "SPOT", STARTED, True),
        ("FAILED", "STOCKOUT", "SPOT", STARTED, True),
        ("FAILED", STOCKOUT, "STANDARD", STARTED, False),
        ("FAILED", STOCKOUT, "SPOT", None, False),
        ("CANCELLED", STOCKOUT, "SPOT", STARTED, False),
        (
            "FAILED",
            "The replica workerpool0-0 exited with a non-zero status of 1. Termination reason: "
            "Error. KeyError: 'stockout'",
            "SPOT",
            STARTED,
            False,
        ),
    ],
)
def test_a_spot_job_that_was_running_is_preempted(state, message, strategy, start, expected):
    job = {
        "state": f"JOB_STATE_{state}",
        "error": {"message": message},
        "jobSpec": {"scheduling": {"strategy": strategy}},
        **({"startTime": start} if start else {}),
    }
    assert is_preempted(job) is expected


def test_a_metric_of_0_is_a_result_and_a_missing_one_is_none():
    metrics = [{"metricId": "loss"}], [{"metricId": "loss", "value": 0.5}], []
    trials = [
        {"id": str(number), "state": "SUCCEEDED", "finalMeasurement": {"metrics": each}}
        for number, each in enumerate(metrics)
    ]
    name = NAME.replace("customJobs", "hyperparameterTuningJobs")
    study = {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}]}
    job = read_status({"name": name, "studySpec": study, "trials": trials}, "p")
    assert [trial.metric for trial in job.trials] == [0.0, 0.5, None]
