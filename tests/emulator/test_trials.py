"""Tuning jobs: the parameters of their trials, as processes, and their measurements."""

from __future__ import annotations

import itertools
import json
import sys

import pytest

from distlaunch.emulator.process import ProcessBackend
from distlaunch.emulator.trials import read_measurements, suggest_parameters

from .jobs import jobs_on, pool, tuning_job

# What cloudml-hypertune does.
REPORT = """\
import json, os, sys
rate = float(sys.argv[1].removeprefix("--rate="))
print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}), flush=True)
if rate > float(os.environ.get("MAX_RATE", "inf")):
    sys.exit(9)
with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
    for step in (1, 2):
        print(json.dumps({"timestamp": 1.0, "loss": rate / step, "global_step": step}), file=file)
"""
RATE = {"parameterId": "rate", "discreteValueSpec": {"values": [1.0, 2.0, 4.0]}}
LAYERS = {"parameterId": "layers", "integerValueSpec": {"minValue": "1", "maxValue": "2"}}


@pytest.fixture
def jobs(tmp_path):
    with jobs_on(ProcessBackend(tmp_path, tmp_path, "http://127.0.0.1:9")) as jobs:
        yield jobs


def tuning(*parameters, program=REPORT, env=(), **job):
    pools = [pool(sys.executable, "-c", program, env=list(env))]
    return tuning_job(*parameters, pools=pools, **job)


def test_each_trial_runs_with_its_parameters_and_reports_its_measurements(jobs, tmp_path):
    name, job = jobs.run(tuning(RATE, LAYERS, trials=50, at_once=2))  # the grid has 6
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    assert [trial["id"] for trial in job["trials"]] == list("123456")
    lines = map(json.loads, jobs.texts(name))
    reports = {report["env"]["CLOUD_ML_TRIAL_ID"]: report for report in lines}
    for trial in job["trials"]:
        rate, layers = (parameter["value"] for parameter in trial["parameters"])
        argv, env = reports[trial["id"]]["argv"], reports[trial["id"]]["env"]
        assert argv == [f"--rate={rate:g}", f"--layers={layers}"]
        assert env["AIP_MODEL_DIR"] == f"{tmp_path}/bucket/job/{trial['id']}/model/"
        assert json.loads(env["CLUSTER_SPEC"])["task"]["trial"] == trial["id"]
        metrics = [{"metricId": "loss", "value": rate / 2}]
        assert trial["finalMeasurement"] == {"stepCount": "2", "metrics": metrics}
        assert len(trial["measurements"]) == 2
        assert trial["state"] == "SUCCEEDED"
    assert {tuple(report["argv"]) for report in reports.values()} == {
        (f"--rate={rate}", f"--layers={layers}") for rate in (1, 2, 4) for layers in (1, 2)
    }


def test_a_trial_that_fails_is_infeasible(jobs):
    env = [{"name": "MAX_RATE", "value": "2"}]
    _, job = jobs.run(tuning(RATE, trials=3, env=env, maxFailedTrialCount=2))
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    assert [trial["state"] for trial in job["trials"]] == ["SUCCEEDED", "SUCCEEDED", "INFEASIBLE"]
    assert "non-zero status of 9." in job["trials"][2]["infeasibleReason"]
    assert "finalMeasurement" not in job["trials"][2]


def test_a_trial_that_reports_nothing_is_infeasible(jobs):
    _, job = jobs.run(tuning(LAYERS, trials=1, program="print('nothing')"))
    assert job["state"] == "JOB_STATE_FAILED"
    assert "reported no measurement" in job["error"]["message"]


@pytest.mark.parametrize(("allowed", "count"), [(0, 3), (1, 1)])
def test_too_many_failed_trials_end_the_job(jobs, allowed, count):
    job = tuning(LAYERS, RATE, trials=6, program="raise SystemExit(9)", maxFailedTrialCount=allowed)
    _, job = jobs.run(job)
    assert job["state"] == "JOB_STATE_FAILED"
    assert len(job["trials"]) == count
    assert job["error"]["message"].startswith(f"Too many failed trials ({count}). The replica ")


def test_a_cancelled_tuning_job_stops_its_trials_and_starts_no_others(jobs):
    program = "print('here', flush=True); import time; time.sleep(600)"
    name = jobs.start(tuning(LAYERS, RATE, trials=6, at_once=2, program=program))
    jobs.wait_until(lambda: len(jobs.texts(name)) == 2)
    jobs.runner.cancel(name)
    job = jobs.wait(name)
    assert job["state"] == "JOB_STATE_CANCELLED"
    assert [trial["state"] for trial in job["trials"]] == ["INFEASIBLE"] * 2
    assert job["trials"][0]["infeasibleReason"] == "The trial was stopped."


SCALED = {"parameterId": "rate", "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0}}
KIND = {"parameterId": "kind", "categoricalValueSpec": {"values": ["sgd", "adam"]}}
UNITS = {"parameterId": "units", "discreteValueSpec": {"values": [16, 32]}}


def suggestions(algorithm, *parameters, limit=100, seed="seed"):
    spec = {"algorithm": algorithm, "parameters": parameters}
    return list(itertools.islice(suggest_parameters(spec, seed), limit))


@pytest.mark.parametrize(
    ("scale", "second"),
    [(None, 0.112), ("UNIT_LOG_SCALE", 0.00215), ("UNIT_REVERSE_LOG_SCALE", 0.537)],
)
def test_a_grid_follows_the_scale(scale, second):
    values = [drawn["rate"] for drawn in suggestions("GRID_SEARCH", SCALED | {"scaleType": scale})]
    assert len(values) == 10
    assert (values[0], values[-1]) == pytest.approx((0.001, 1.0))
    assert values[1] == pytest.approx(second, rel=0.01)


def test_random_parameters_are_in_range_and_the_same_for_the_same_seed():
    parameters = (SCALED | {"scaleType": "UNIT_LOG_SCALE"}, LAYERS, KIND, UNITS)
    drawn = suggestions(None, *parameters)
    assert all(0.001 <= values["rate"] <= 1.0 for values in drawn)
    discrete = {(values["layers"], values["kind"], values["units"]) for values in drawn}
    assert discrete == set(itertools.product([1, 2], ["sgd", "adam"], [16, 32]))
    assert suggestions("RANDOM_SEARCH", *parameters) == drawn
    assert suggestions("RANDOM_SEARCH", *parameters, seed="other") != drawn


def measure(*records, metrics, **spec):
    """Return the measurements of a program that was killed while it wrote a line."""
    lines = [*map(json.dumps, records), '["a"]', "no json", '{"accur']
    return read_measurements({"metrics": metrics, **spec}, "\n".join(lines))


@pytest.mark.parametrize(
    ("selection", "goal", "value", "step"),
    [
        (None, "MAXIMIZE", 0.7, "3"),
        ("BEST_MEASUREMENT", "MAXIMIZE", 0.9, "2"),
        ("BEST_MEASUREMENT", "MINIMIZE", 0.5, "1"),
    ],
)
def test_the_last_or_the_best_measurement_is_the_final_one(selection, goal, value, step):
    measurements, final = measure(
        {"timestamp": 1.0, "trial": "1", "accuracy": 0.5, "global_step": "1"},
        {"timestamp": 2.0, "trial": "1", "accuracy": 0.9, "global_step": "2"},
        {"timestamp": 3.0, "trial": "1", "accuracy": 0.7, "global_step": "3"},
        metrics=[{"metricId": "accuracy", "goal": goal}],
        measurementSelectionType=selection,
    )
    assert len(measurements) == 3
    assert final == {"stepCount": step, "metrics": [{"metricId": "accuracy", "value": value}]}


def test_metrics_of_one_step_are_one_measurement():
    metrics = [{"metricId": "accuracy"}, {"metricId": "loss"}]
    records = [{"accuracy": 0.5, "global_step": 4}, {"loss": 2.0, "global_step": 4}]
    records += [{"accuracy": None, "loss": [], "global_step": 4}]
    measurements, final = measure(*records, metrics=metrics)
    assert measurements == [final]
    values = [{"metricId": "accuracy", "value": 0.5}, {"metricId": "loss", "value": 2.0}]
    assert final == {"stepCount": "4", "metrics": values}
    assert measure({"error": 1.0}, metrics=metrics) == ([], None)
