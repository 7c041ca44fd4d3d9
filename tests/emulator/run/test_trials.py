"""The trials of a tuning job, as processes."""

from __future__ import annotations

import itertools
import json
import sys

import pytest

from distlaunch.emulator.run.process import ProcessMachines

from .jobs import jobs_on, pool

# What cloudml-hypertune does, and a file that tells who runs at once.
REPORT = """\
import json, os, pathlib, sys, time
values = dict(word.removeprefix("--").split("=") for word in sys.argv[1:])
trial, rate = os.environ["CLOUD_ML_TRIAL_ID"], float(values["rate"])
print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}), flush=True)
if rate > float(os.environ.get("TOO_MUCH", "inf")):
    sys.exit(9)
with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
    for step in (1, 2):
        told = {"timestamp": time.time(), "trial": trial, "loss": rate / step, "global_step": step}
        file.write(json.dumps(told) + "\\n")
"""
METRICS = [{"metricId": "loss", "goal": "MINIMIZE"}]
RATE = {"parameterId": "rate", "discreteValueSpec": {"values": [1, 2, 4]}}
LAYERS = {"parameterId": "layers", "integerValueSpec": {"minValue": "1", "maxValue": "2"}}


@pytest.fixture
def jobs(tmp_path):
    with jobs_on(ProcessMachines(tmp_path, "http://127.0.0.1:9")) as jobs:
        yield jobs


def tuning(*parameters, trials=6, at_once=2, program=REPORT, env=(), **more):
    command = pool(sys.executable, "-c", program, env=list(env))
    return {
        "displayName": "tuning",
        "studySpec": {
            "metrics": METRICS,
            "parameters": list(parameters),
            "algorithm": "GRID_SEARCH",
        },
        "maxTrialCount": trials,
        "parallelTrialCount": at_once,
        "trialJobSpec": {
            "workerPoolSpecs": [command],
            "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/job"},
        },
        **more,
    }


def test_every_trial_runs_with_its_parameters_and_its_measurement_counts(jobs):
    name, job = jobs.run(tuning(RATE, LAYERS))
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    assert [trial["id"] for trial in job["trials"]] == list("123456")
    assert {trial["state"] for trial in job["trials"]} == {"SUCCEEDED"}
    told = {}
    for entry in jobs.logs.scan(job_id=name.rpartition("/")[2]):
        if entry.task_name == "workerpool0-0":
            told[entry.trial] = json.loads(entry.text)
    for trial in job["trials"]:
        values = {each["parameterId"]: each["value"] for each in trial["parameters"]}
        mine = told[trial["id"]]
        assert mine["argv"] == [f"--rate={values['rate']}", f"--layers={values['layers']}"]
        assert mine["env"]["AIP_MODEL_DIR"] == f"gs://bucket/job/{trial['id']}/model/"
        assert json.loads(mine["env"]["CLUSTER_SPEC"])["task"]["trial"] == trial["id"]
        assert trial["finalMeasurement"] == {
            "stepCount": "2",
            "metrics": [{"metricId": "loss", "value": values["rate"] / 2}],
        }
        assert [each["stepCount"] for each in trial["measurements"]] == ["1", "2"]
        assert trial["startTime"] < trial["endTime"]
    assert {tuple(each["argv"]) for each in told.values()} == {
        (f"--rate={rate}", f"--layers={layers}") for rate in (1, 2, 4) for layers in (1, 2)
    }


MEET = """\
import os, pathlib, time
pathlib.Path(os.environ["CLOUD_ML_TRIAL_ID"]).touch()
while not (pathlib.Path("1").exists() and pathlib.Path("2").exists()):
    time.sleep(0.01)
"""


def test_as_many_trials_run_at_once_as_are_asked_for(jobs):
    _, job = jobs.run(tuning(LAYERS, trials=2, at_once=2, program=MEET))
    assert len(job["trials"]) == 2, "they have met"


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_more_trials_run_at_once_than_are_asked_for(jobs, at_once):
    _, job = jobs.run(tuning(RATE, LAYERS, at_once=at_once))
    times = [(trial["startTime"], 1) for trial in job["trials"]]
    times += [(trial["endTime"], -1) for trial in job["trials"]]
    running = itertools.accumulate(change for _, change in sorted(times))
    assert max(running) == at_once


def test_a_trial_that_tells_nothing_or_fails_is_infeasible(jobs):
    env = [{"name": "TOO_MUCH", "value": "2"}]
    _, job = jobs.run(tuning(RATE, trials=3, at_once=1, env=env, maxFailedTrialCount=2))
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    assert [trial["state"] for trial in job["trials"]] == ["SUCCEEDED", "SUCCEEDED", "INFEASIBLE"]
    assert "non-zero status of 9." in job["trials"][2]["infeasibleReason"]
    assert "finalMeasurement" not in job["trials"][2]

    _, job = jobs.run(tuning(RATE, trials=3, at_once=1, program="print('nothing')"))
    assert job["state"] == "JOB_STATE_FAILED"
    assert {trial["state"] for trial in job["trials"]} == {"INFEASIBLE"}
    assert "reported no measurement" in job["error"]["message"]


def test_too_many_failed_trials_end_the_job(jobs):
    program = "raise SystemExit(9)"
    _, job = jobs.run(tuning(LAYERS, RATE, trials=6, at_once=1, program=program))
    assert job["state"] == "JOB_STATE_FAILED"
    assert len(job["trials"]) == 3, "a zero means: as Vertex AI decides"
    _, job = jobs.run(
        tuning(LAYERS, RATE, trials=6, at_once=1, program=program, maxFailedTrialCount=1)
    )
    assert len(job["trials"]) == 1
    assert job["error"]["message"].startswith("Too many failed trials (1). The replica ")


def test_a_grid_that_is_used_up_ends_the_job_before_the_most_trials(jobs):
    _, job = jobs.run(tuning(LAYERS | {"parameterId": "rate"}, trials=50))
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    assert len(job["trials"]) == 2


def test_a_cancelled_tuning_job_stops_its_trials_and_asks_for_no_more(jobs):
    program = "print('here', flush=True); import time; time.sleep(600)"
    name = jobs.begin(tuning(LAYERS, RATE, program=program))
    jobs.wait_until(name, lambda _: len(jobs.texts(name, "workerpool0-0")) == 2)
    jobs.lives.cancel(name)
    job = jobs.wait(name)
    assert job["state"] == "JOB_STATE_CANCELLED"
    assert [trial["state"] for trial in job["trials"]] == ["INFEASIBLE"] * 2
    assert job["trials"][0]["infeasibleReason"] == "The trial was stopped."
