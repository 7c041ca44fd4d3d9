"""`distlaunch forecast` on recorded summaries; the law compares it with real runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from json_schemas import load_checked

from distlaunch.checks.trainer import parse_arguments
from distlaunch.job.load import load_job_file
from distlaunch.job.model import Cluster, Job, Machine, Pool
from distlaunch.price.forecast import total_for
from distlaunch.price.step_time import LOCAL, MeasuredRun
from distlaunch.runs.measured import measured_runs

from .cloud import Cloud

ROOT = Path(__file__).parents[2]
PARTS = ("input", "compute", "exchange", "wait")
# Steps of benchmarks/images on two cores: tasks, bytes of gradients, and the parts in ms.
MEASURED = {
    "small-1": (1, 51_240, 0.2, 3.9, 0.0, 0.0),
    "small-2": (2, 51_240, 0.2, 4.6, 0.98, 0.94),
    "wide-1": (1, 481_448, 0.3, 69.9, 0.0, 0.0),
    "wide-2": (2, 481_448, 0.2, 69.4, 1.02, 0.91),
}
WRITE_SUMMARY = """
import os, sys
from pathlib import Path
folder = Path(os.environ["AIP_MODEL_DIR"]).parent
folder.mkdir(parents=True, exist_ok=True)
(folder / "summary.json").write_text(sys.argv[1])
"""
JOB = """\
name: digits
region: us-central1
args: [--epochs, "6", --batch-size=64]
cluster:
  chief: {machine: n1-standard-4}
  workers: {machine: n1-standard-4, count: 1}
"""


@pytest.fixture
def project(tmp_path):
    for name in MEASURED:
        write_run(tmp_path, name)
    (tmp_path / "distlaunch.yaml").write_text(JOB)
    return tmp_path


def write_run(project, name, like=None, **changes):
    """Write the record and the summary of a run, as launcher and trainer do."""
    summary = summary_of(like or name)
    folder = project / ".distlaunch/local" / name
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary | changes))
    record = {"id": name, "started": "2026-11-23T12:00:00Z", "ended": "2026-11-23T12:01:00Z"}
    record |= {"state": "SUCCEEDED", "exit_code": 0, "job_dir": str(folder)}
    cores = len(summary["tasks"])
    record |= {"machine": f"{cores} cores, no GPU", "cluster": {"chief": 1}}
    (folder / "run.json").write_text(json.dumps(record))


def summary_of(name):
    tasks, size, *parts = MEASURED[name]
    seconds = {part: ms / 1000 for part, ms in zip(PARTS, parts, strict=True)}
    timing = {"steps": 40, "total": sum(seconds.values()), **seconds, "slowest": {}, "tasks": {}}
    return {
        "tasks": ["chief", "worker:0"][:tasks],
        "replicas": tasks,
        "global_batch": 64 * tasks,
        "steps_per_epoch": 40,
        "examples_per_epoch": 600_000,
        "epochs": [{"timing": timing}] * 3,
        "timing": timing,
        "gradient_bytes": size,
        "machine": {"cpus": 1, "gpus": [], "memory_bytes": 8 << 30},
    }


@pytest.fixture
def forecast(run, project):
    def forecast_json(*words):
        done = run("forecast", *words, "--json", cwd=project)
        assert done.code == 0, done.err
        content = load_checked("forecast", done.out)
        return content["shapes"], content["refused"]

    return forecast_json


def test_time_and_money_of_clusters_with_their_sources(run, project):
    done = run("forecast", "wide-1", "--workers", "1,2,4", cwd=project)
    assert done.code == 0, done.err
    heads, *rows = done.out.splitlines()[:4]
    assert heads.split() == ["machine", "workers", "rows", "step", "examples/s", "time", "money"]
    assert [row.split()[:3] for row in rows] == [["n1-standard-4", n, "64"] for n in "124"]
    assert all("USD" in row for row in rows)
    for text in (
        "compute: measured (wide-1), from 1 to 4 cores and from this machine (assumed)",
        "exchange: documented limit of 10 Gbit/s, of which 10-100 % are reached (assumed)",
        "start: assumed: 5 min (2-15)",
        "money: estimate from list prices of 20",
        "not included: validation",
    ):
        assert text in done.out
    done = run("forecast", "wide-1", "--workers", "1,2", "--html", "--json", cwd=project)
    page = project / "forecast.html"
    assert f"page: {page.as_uri()}\n" in done.err
    data = re.search('id="data">(.*)</script>', page.read_text())[1]
    assert json.loads(data) == load_checked("forecast", done.out)
    assert run("forecast", "--output", "a.html", cwd=project).code == 2


def test_other_tasks_on_this_machine_are_forecast_from_two_runs_of_two_models(
    run, project, forecast, monkeypatch
):
    monkeypatch.setattr("distlaunch.local.host_resources._cores", lambda: (0, 1))
    runs = ("wide-1", "wide-2", "small-2")
    shapes, _ = forecast(*runs, "--machine", "local", "--workers", "2,3,4")
    two, three, four = (shape["step_seconds"]["mid"] * 1000 for shape in shapes)
    assert two == pytest.approx(71.5, rel=0.01)  # as measured
    assert three == pytest.approx(114.5, rel=0.15)  # measured later
    assert four == pytest.approx(152.8, rel=0.15)
    assert "sharing" not in shapes[0]["sources"]
    assert shapes[1]["sources"]["exchange"] == "measured, fitted (wide-2, small-2)"
    assert shapes[0]["money"] is None
    # A run that is named twice counts once, and this machine costs no money.
    words = (*runs, "wide-1", "--machine", "local", "--workers", "2,3,4")
    assert forecast(*words)[0] == shapes
    assert "money" not in run("forecast", *words, cwd=project).out


def test_faster_and_dearer_clusters_are_on_the_front(forecast):
    machines = "--machine n1-standard-4 --machine n1-highmem-4"
    shapes, _ = forecast("wide-1", *machines.split(), "--workers=1,4", "--epochs=50")
    best = {(shape["machine"], shape["workers"]) for shape in shapes if shape["is_best"]}
    assert best == {("n1-standard-4", 1), ("n1-standard-4", 4)}  # high memory only costs more
    one, four = shapes[:2]
    assert four["hours"]["mid"] < one["hours"]["mid"] < 4 * four["hours"]["mid"]
    assert one["money"]["low"] < one["money"]["mid"] < one["money"]["high"]
    assert one["is_estimate"]


def test_where_the_start_takes_the_time_more_workers_only_cost_more(forecast, project):
    write_run(project, "short", "small-1", examples_per_epoch=1000)
    shapes, _ = forecast("short", "--workers", "1,2,4")
    assert [shape["is_best"] for shape in shapes] == [True, False, False]


def test_several_batch_sizes_give_the_time_of_another_one(forecast, project):
    timing = {"steps": 9, "total": 0.04, "input": 0, "compute": 0.04, "exchange": 0, "wait": 0}
    write_run(project, "half", "wide-1", global_batch=32, timing=timing)
    words = ("--machine", "local", "--workers", "1", "--batch-size", "128")
    (assumed,), _ = forecast("wide-1", *words)
    (fitted,), _ = forecast("wide-1", "half", *words)
    assert "proportional to rows (assumed" in assumed["sources"]["compute"]
    assert "proportional" not in fitted["sources"]["compute"]
    # 40 ms and 70.2 ms are 9.8 ms and 0.94 ms per row.
    ratio = fitted["step_seconds"]["mid"] / assumed["step_seconds"]["mid"]
    assert ratio == pytest.approx((9.8 + 0.944 * 128) / (2 * 70.2), rel=0.02)


def test_what_was_not_measured_is_refused_with_a_run_that_would_measure_it(run, forecast, project):
    gpu = "n1-standard-8:NVIDIA_TESLA_T4"
    done = run("forecast", "wide-1", "--machine", gpu, cwd=project)
    assert done.code == 1
    assert "no run measured a task with these; submit a short job of one worker" in done.err
    assert "cluster.chief.accelerator.type=NVIDIA_TESLA_T4" in done.err
    shapes, refused = forecast("wide-1", "--machine", gpu, "--machine", "n1-standard-4")
    assert {shape["machine"] for shape in shapes} == {"n1-standard-4"}
    assert len(refused) == 1

    machine = {"cpus": 4, "gpus": ["Tesla T4"], "memory_bytes": 1}
    write_run(project, "gpu", "wide-1", machine=machine)
    shapes, refused = forecast("gpu", "--machine", gpu, "--workers", "1,2")
    assert not refused
    assert "limit of 16 Gbit/s" in shapes[1]["sources"]["exchange"]
    assert "steps on CPUs were not measured" in run("forecast", "gpu", cwd=project).err

    write_run(project, "embedding", "wide-1", gradient_bytes=None)
    shapes, refused = forecast("embedding", "--workers", "1,2")
    assert [shape["workers"] for shape in shapes] == [1]
    assert "pass a run with 2 workers there" in refused[0]


def test_the_known_speed_of_a_gpu_replaces_a_run_on_it(forecast):
    words = ("--machine", "n1-standard-8:NVIDIA_TESLA_T4", "--workers", "1,4")
    (one, four), refused = forecast("wide-1", "wide-2", *words, "--examples-per-second", "160")
    assert not refused
    assert one["step_seconds"]["mid"] == pytest.approx(64 / 160)
    (half,), _ = forecast("wide-1", *words[:3], "1", "--examples-per-second=160", "--batch-size=32")
    assert half["step_seconds"]["mid"] == pytest.approx(32 / 160)
    assert half["step_seconds"]["low"] > 0.9 * 32 / 160
    assert one["sources"]["compute"] == "measured (160 examples/s, as given)"
    assert 3 * 160 < four["examples_per_second"]["mid"] < 4 * 160
    assert "limit of 16 Gbit/s" in four["sources"]["exchange"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["wide-1", "--machine=local", "--machine=n1-standard-4", "--examples-per-second=1"],
            "--examples-per-second is the speed of one machine: give one --machine",
        ),
        (["untimed"], "untimed: the time of its steps was not measured"),
        (["foreign"], "foreign: the time of its steps was not measured"),
        (["text"], "text: the time of its steps was not measured"),
        (["no-tasks"], "no-tasks: summary.json is not the trainer's"),
        (["wide-1", "--machine", "n1-standard-5"], "unknown machine type; did you mean"),
        (["wide-1", "--machine", "n1-standard-4:T4"], "did you mean 'NVIDIA_TESLA_T4'?"),
        (["wide-1", "--machine", "N1"], "expected TYPE[:ACCELERATOR[:COUNT]] or local"),
        (["wide-1", "--workers", "0"], "expected numbers from 1 to 1000"),
    ],
)
def test_a_wrong_run_or_option_is_one_line(run, project, words, error):
    write_run(project, "untimed", "wide-1", timing=None)
    write_run(project, "text", "wide-1", timing="x")
    write_run(project, "no-tasks", "wide-1", tasks=[])
    write_run(project, "foreign", "wide-1")
    (project / ".distlaunch/local/foreign/summary.json").write_text('{"timing": {"total": 1}}')
    done = run("forecast", *words, cwd=project)
    assert done.code in (1, 2)
    assert error in done.err
    assert len(done.err.splitlines()) == 1


def test_a_job_in_the_cloud_is_measured_on_its_machines(run, project):
    with Cloud(project, storage=project / "buckets") as cloud:
        summary = summary_of("wide-2") | {"machine": {"cpus": 4, "gpus": [], "memory_bytes": 1}}
        folder = "gs://bucket/digits-1"
        created = cloud.launch(WRITE_SUMMARY, "digits-1", [json.dumps(summary)], job_dir=folder)
        cloud.record(project, "digits-1", cloud.wait(created))
        done = run("forecast", "digits-1", "--json", "--workers", "2,4", cwd=project)
    assert done.code == 0, done.err
    assert "digits-1: it ran at the emulator, so its times are those of this machine" in done.err
    two, four = load_checked("forecast", done.out)["shapes"]
    assert two["sources"]["compute"] == "measured (digits-1)"
    assert two["sources"]["exchange"].startswith("measured (digits-1): by bandwidth to by latency")
    assert two["step_seconds"]["mid"] == pytest.approx(0.0715, rel=0.01)
    # The exchange takes 1.5 times as long by bandwidth, 3 times by latency, and half by each.
    exchange = four["step_seconds"]["mid"] - 0.0696 - 0.00091 * 1.05 / 0.589
    assert exchange == pytest.approx(0.00102 * 2.25, rel=0.1)


def test_a_job_is_forecast_from_the_runs_of_its_project(project):
    job = load_job_file(project / "distlaunch.yaml", [])
    runs = [run for run in measured_runs(project) if run.name.startswith("wide")]
    shape = total_for(job, project, runs, options_of(*job.args))
    assert (shape.workers, shape.epochs, shape.steps) == (2, 6, 4688 * 6)
    assert "USD (" in shape.describe_total()
    assert total_for(job, project, [], options_of()) is None


def options_of(*args):
    return parse_arguments(args, epochs=None)[0]


@pytest.mark.parametrize(
    ("gpus", "args", "steps"),
    [
        (0, [], 2 * 750),  # of the run: 2 epochs of 64 rows on each of 2 tasks
        (0, ["--epochs=3", "--global-batch-size", "96"], 3 * 1000),
        (0, ["--batch-size=32", "--steps-per-epoch=7"], 2 * 7),
        (8, ["--batch-size=32"], 2 * 188),  # rows of a GPU
        (8, ["--global-batch-size=96"], 2 * 1000),
    ],
)
def test_the_steps_of_a_job_are_those_of_its_options(tmp_path, gpus, args, steps):
    machine = Machine("n1-standard-8", *(("NVIDIA_TESLA_V100", gpus) if gpus else ()))
    job = Job("digits", Cluster(Pool(machine), Pool(machine, 1)), region="us-central1")
    run = MeasuredRun(
        *("run", Machine(LOCAL), ("Tesla V100-SXM2",) * gpus, 4.0, 2),
        batch=64,
        compute=0.01,
        exchange=0.01,
        spread=0.0,
        gradient_bytes=1e6,
        examples=96_000,
        epochs=2,
        noise=0.05,
    )
    assert total_for(job, tmp_path, [run], options_of(*args)).steps == steps


if os.environ.get("DISTLAUNCH_TEST_LAWS"):  # make laws

    def test_runs_of_one_and_two_workers_predict_three_and_four_within_15_percent():
        command = [sys.executable, str(ROOT / "benchmarks/forecast.py"), "--rounds", "3"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_plan_of_a_submit_has_the_time_and_the_price_of_the_job(run, project):
    (project / "trainer.py").touch()
    words = ("submit", "--dry-run", "--no-check", "--image=localhost:5000/digits:1")
    location = ("--project=demo-project", "--region=us-central1", "--set=bucket=gs://demo-bucket")
    done = run(*words, *location, "--set=module=trainer", cwd=project)
    assert done.code == 0, done.err
    [line] = [line for line in done.err.splitlines() if "forecast: " in line]
    assert re.search(r"forecast: [\d.]+ (h|min) \(.*\), [\d.]+ USD \(", line)
    (project / "prices.yaml").write_text("us-central1: {STANDARD: {z9-standard-4: 500}}")
    (project / "machines.yaml").write_text("machines: {z9-standard-4: {egress_gbps: 10}}")
    files = ("--prices=prices.yaml", "--catalogue=machines.yaml", "--set=module=trainer")
    sets = [f"--set=cluster.{pool}.machine=z9-standard-4" for pool in ("chief", "workers")]
    done = run(*words, *location, *files, *sets, cwd=project)
    [line] = [line for line in done.err.splitlines() if "forecast: " in line]
    minutes, money = re.search(r"forecast: ([\d.]+) min \(.*\), ([\d,]+) USD \(", line).groups()
    assert int(money) == pytest.approx(2 * 500 * float(minutes) / 60, rel=0.02)
    for folder in (project / ".distlaunch/local").iterdir():
        (folder / "summary.json").unlink()
    assert "forecast: " not in run(*words, *location, "--set=module=trainer", cwd=project).err
