"""Figures of tasks in words, and what `stop_if` is for the trainer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.engines.api import LogSelection
from distlaunch.engines.slurm import batch
from distlaunch.engines.slurm.launch_folder import LaunchFolder
from distlaunch.engines.slurm.logs import TaskLogReader, read_figures
from distlaunch.errors import JobFileError
from distlaunch.failure_reasons import explain
from distlaunch.figures import Figures
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.load import job_from_data
from distlaunch.job.model import IDLE_CODE, STOP_IF
from distlaunch.job.overrides import job_data
from distlaunch.job.vertex.from_job import build_request
from distlaunch.local.run_plan import RunOptions, plan_run

GOLDEN = json.loads((Path(__file__).parent / "golden/figures.json").read_text())
JOB = {"name": "digits", "cluster": {"chief": {"machine": "n1-standard-4"}}}


def test_the_words_of_the_trainer_s_figures():
    assert [*Figures({"chief": GOLDEN["entry"]["figures"]}).parts()] == GOLDEN["text"]
    tasks = {f"worker:{n}": {"cpu_cores": n / 2, "memory_gib": 1, "gpu": None} for n in range(5)}
    assert [*Figures(tasks).parts()] == ["CPU of 5 tasks 1.0 cores, lowest worker:0 0.0 cores"]
    assert [*Figures({"chief": {"input": "x", "gpu": True}}).parts()] == []


def test_figures_of_trials_that_have_ended_are_left_out():
    figures, times = Figures(), {1: 100.0, 2: 900.0, 3: 960.0}
    for trial, moment in times.items():
        values = {"time": moment, "examples_per_second": 10.0 * trial, "gpu": 0.1 * trial}
        for task in ("chief", "worker:0"):
            figures.add(f"trial:{trial}/{task}", values, 2)
    speed, gpus = figures.parts()
    assert speed == "trial:2 20, trial:3 30 examples/s"
    assert gpus.startswith("GPU trial:2/chief 20 %, trial:2/worker:0 20 %, trial:3/chief 30 %")


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_a_line_is_due_after_all_tasks_or_a_second_report_of_one(tasks):
    figures, fresh = Figures(), []
    for task in tasks:
        is_due = figures.add(task, {}, 3)
        assert is_due == (task in fresh or len({*fresh, task}) == 3)
        fresh = ([task] if task in fresh else []) if is_due else [*fresh, task]


@pytest.mark.parametrize("share", ["10%", "10 %", "0.1", "10.0%"])
def test_stop_if_reaches_the_tasks_and_survives_a_resubmit(share):
    job = job_from_data({**JOB, "stop_if": {"gpu_below": share, "for": "1h"}}, (), ())
    golden = GOLDEN["stop_if"]
    assert json.loads(job.task_env[golden["variable"]]) == golden["value"]
    assert (golden["variable"], golden["exit_code"]) == (STOP_IF, IDLE_CODE)
    assert explain(golden["error"]).reason == "the GPUs were idle (stop_if)"
    assert job_from_data(job_data(job), (), ()).stop_if == job.stop_if


def test_every_engine_passes_stop_if_to_the_tasks(tmp_path):
    data = {**JOB, "stop_if": {"gpu_below": "10%", "for": "1h"}, "slurm": {"folder": "/shared"}}
    job = job_from_data(data, (), ())
    body = build_request(job, image="a/b:1", labels={}, job_dir=None)
    container = body["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]
    on_vertex = {each["name"]: each["value"] for each in container["env"]}
    on_slurm = batch.build_request(LaunchRequest(tmp_path, job), "digits-1")["env"]
    here = plan_run(tmp_path, job, RunOptions()).env
    for env in (on_vertex, on_slurm, here):
        assert json.loads(env[STOP_IF]) == GOLDEN["stop_if"]["value"]


@pytest.mark.parametrize(
    ("section", "part"),
    [
        ({"gpu_below": "0", "for": "1h"}, "a share such as 10%"),
        ({"gpu_below": "101%", "for": "1h"}, "a share such as 10%"),
        ({"gpu_below": "10", "for": "1h"}, "a share such as 10%"),
        ({"gpu_below": "10%", "for": "59s"}, "1m or more"),
        ({"gpu_below": "10%"}, "for"),
    ],
)
def test_a_wrong_stop_if_is_refused(section, part):
    with pytest.raises(JobFileError, match=part):
        job_from_data({**JOB, "stop_if": section}, (), ())


def test_the_newest_figures_of_a_job_on_slurm(tmp_path):
    attempt = tmp_path / "task-logs/attempt-1"
    attempt.mkdir(parents=True)
    lines = [{"event": "step", "step": 1}] * 9000
    events = [*lines, {"event": "figures", "step": 1}, {"event": "figures", "step": 2}, *lines[:3]]
    text = "".join(f"{json.dumps(event)}\n" for event in events)
    (attempt / "chief.events.jsonl").write_text(text)
    found = read_figures(LaunchFolder(tmp_path), ["chief", "worker:0", "slurm"])
    assert found == {"chief": {"step": 2}}


def test_figures_in_the_log_of_a_job_on_slurm_are_of_all_tasks_in_turn(tmp_path):
    attempt = tmp_path / "task-logs/attempt-1"
    attempt.mkdir(parents=True)
    for number, task in enumerate(("chief", "worker-0")):
        events = [{"event": "figures", "time": 60.0 * n + number, "step": n} for n in (1, 2)]
        text = "".join(f"{json.dumps(event)}\n" for event in events)
        (attempt / f"{task}.events.jsonl").write_text(text)
    chief, worker = "chief", "worker:0"
    for selection, tasks in (
        (LogSelection(), [chief, worker, chief, worker]),
        (LogSelection(tasks=(worker,)), [worker, worker]),
        (LogSelection(last=9), []),
        (LogSelection(pattern=re.compile("figures")), []),
    ):
        reader = TaskLogReader(LaunchFolder(tmp_path), [chief, worker, "slurm"], selection)
        assert [event.task for event in reader.read()] == tasks
