"""`distlaunch tune` as its user meets it: trials on this machine and at the emulator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from distlaunch import scaffold
from distlaunch.errors import DistlaunchError
from distlaunch.files import may_be_locked
from distlaunch.job.load import load_job
from distlaunch.tune.trial_runs import SearchPlan, TrialRuns

from ..json_schemas import load_checked  # noqa: TID252 - tests are no package
from .cloud import Cloud, write_project
from .terminal import run_on_terminal

TUNING = """\
tuning:
  metric: accuracy
  goal: maximize
  trials: 3
  algorithm: grid
  parameters:
    rate: {values: [slow, fast]}
    size: {type: integer, min: 1, max: 2}
"""
JOB_FILE = f"""\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: trial
cluster:
  chief: {{machine: n1-standard-4}}
{TUNING}"""
# Writes what cloudml-hypertune writes; fails for the options in FAIL, and waits for those in WAIT.
TRIAL = """\
import argparse, json, os, pathlib, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--rate")
parser.add_argument("--size", type=float)
parser.add_argument("--epochs", type=int, default=2)
options = parser.parse_args()
with open("started.jsonl", "a") as file:
    print(json.dumps({**vars(options), "cores": sorted(os.sched_getaffinity(0))}), file=file)
value = options.size + (0.5 if options.rate == "fast" else 0)
entries = [
    {"accuracy": str(value - 1 / step), "global_step": str(step), "trial": "1", "timestamp": 1.0}
    for step in range(1, options.epochs + 1)
]
if options.rate == os.environ.get("FAIL"):
    sys.exit("cannot train so")
path = pathlib.Path(os.environ["CLOUD_ML_HP_METRIC_FILE"])
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text("".join(json.dumps(entry) + "\\n" for entry in entries))
if options.rate == os.environ.get("WAIT") and not pathlib.Path("continue").exists():
    time.sleep(600)
"""


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path, JOB_FILE, TRIAL, "trial.py")


@pytest.fixture
def tune(run, project):
    """Run `distlaunch tune`; the trials are trial.py."""

    def tune_here(*words):
        return run("tune", *words, cwd=project)

    return tune_here


HERE = ("--local",)
PROGRAM = ("--", sys.executable, "trial.py")


def started(project):
    """Return the options of the trials that were started, in their order."""
    return [json.loads(line) for line in (project / "started.jsonl").read_text().splitlines()]


def test_trials_here_and_the_best_command(tune, run, project, monkeypatch):
    monkeypatch.setenv("FAIL", "fast")
    done = tune("--local", "--json", *PROGRAM, "--epochs=1")
    assert done.code == 0, done.err
    result = load_checked("tune", done.out)
    assert [trial["id"] for trial in result["trials"]] == [2, 1, 3]
    best, second, failed = result["trials"]
    assert best["parameters"] == {"rate": "slow", "size": 2}
    assert (best["metric"], best["step"], best["state"]) == (1.0, 1, "SUCCEEDED")
    assert (second["metric"], result["best"]) == (0.0, 2)
    assert (failed["state"], failed["metric"]) == ("INFEASIBLE", None)
    assert failed["reason"].startswith("chief failed with exit code 1 after")
    assert ": cannot train so; its output is in .distlaunch/tune/digits/" in failed["reason"]
    assert "cannot train so" in (project / ".distlaunch/tune/digits/trial-3/output.log").read_text()
    assert "trial 3 (rate fast, size 1): INFEASIBLE after" in done.err

    assert "page: .distlaunch/tune/digits/search.html\n" in done.err
    page = (project / ".distlaunch/tune/digits/search.html").read_text()
    assert "3 trials; the best is trial 2, with accuracy 1." in page
    assert '<a href="trial-2/run.html">2</a>' in page

    # The command that is printed works: it starts a program with the best options.
    assert result["command"].startswith("distlaunch local -- ")
    command = result["command"].replace("distlaunch", f"{sys.executable} -m distlaunch", 1)
    variables = os.environ | {"CLOUD_ML_HP_METRIC_FILE": str(project / "metrics")}
    subprocess.run(command, shell=True, check=True, cwd=project, env=variables)  # noqa: S602
    assert started(project)[-1].items() >= {"rate": "slow", "size": 2, "epochs": 1}.items()

    # Trials are kept: the same command again starts only those that are missing.
    count = len(started(project))
    done = tune("--local", "--trials=4", *PROGRAM, "--epochs=1")
    assert len(started(project)) == count + 1
    lines = done.out.splitlines()
    assert lines[0].split() == ["TRIAL", "rate", "size", "accuracy", "STATE", "TIME"]
    assert [line.split()[0] for line in lines[1:5]] == ["2", "1", "3", "4"]

    shown = run("show", ".distlaunch/tune/digits/trial-3", cwd=project).out
    assert shown.startswith("run         trial-3\nstate       FAILED (exit code 1)\n")

    # Another search is not mixed with it; --new keeps the old folder.
    done = tune("--local", *PROGRAM)
    assert done.code == 1
    assert ".distlaunch/tune/digits has a search with other arguments; --new starts" in done.err
    monkeypatch.delenv("FAIL")
    notify = 'echo "$DISTLAUNCH_JOB $DISTLAUNCH_STATE" > notified'
    done = tune("--local", "--trials=1", "--new", "--notify", notify, *PROGRAM)
    assert done.code == 0
    assert (project / "notified").read_text() == "digits SUCCEEDED\n"
    assert "the earlier search is in .distlaunch/tune/digits.1" in done.err
    assert len(list((project / ".distlaunch/tune/digits.1").glob("trial-*"))) == 4


def test_a_search_of_which_all_trials_fail(tune, monkeypatch):
    monkeypatch.setenv("FAIL", "slow")
    done = tune("--local", "--trials=1", "--json", *PROGRAM)
    result = load_checked("tune", done.out)
    assert (done.code, result["state"]) == (1, "FAILED")
    assert result["best"] is result["command"] is None


def test_a_metric_that_the_first_trial_does_not_report_ends_the_search(tune, project):
    done = tune("--local", "--set=tuning.metric=loss", *PROGRAM)
    assert done.code == 1
    assert "error: tuning.metric: no metric 'loss': it reported accuracy; correct it" in done.err
    assert len(started(project)) == 1
    assert tune("--local", "--new", *PROGRAM).code == 0


def test_the_trainer_s_search_ends_at_the_first_epoch_without_the_metric(project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setenv("WAIT", "slow")  # the program runs on after it has reported
    job = load_job(project, overrides=["tuning.metric=loss"]).job
    plan = SearchPlan(project, project / "a", job, job.tuning, (), PROGRAM[1:], is_trainer=True)
    before = time.monotonic()
    with pytest.raises(DistlaunchError, match="no metric 'loss': it reported accuracy; correct"):
        TrialRuns(plan).run(lambda _: None, lambda: None)
    assert time.monotonic() - before < 30
    assert len(started(project)) == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("'nan'", "the metric 'accuracy' is nan"),
        ("None", "no metric 'accuracy': it reported accuracy"),
    ],
)
def test_a_metric_that_is_not_a_number_is_never_the_best(tune, project, value, reason):
    (project / "not_finite.py").write_text(
        "import json, os, sys\n"
        f"value = {value} if '--rate=slow' in sys.argv else '1'\n"
        "with open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w') as file:\n"
        "    json.dump({'accuracy': value, 'global_step': '1', 'trial': '1'}, file)\n"
    )
    done = tune("--local", "--json", "--", sys.executable, "not_finite.py")
    assert done.code == 0, done.err
    result = load_checked("tune", done.out)
    assert (result["best"], [each["id"] for each in result["trials"]]) == (3, [3, 1, 2])
    assert result["trials"][1]["state"] == "INFEASIBLE"
    assert result["trials"][1]["reason"] == reason


def test_a_damaged_trial_is_named_and_a_removed_one_is_run_again(tune, project):
    assert tune("--local", *PROGRAM).code == 0
    path = project / ".distlaunch/tune/digits/trial-2/trial.json"
    content = json.loads(path.read_text())
    changes = [("point", {}), ("point", {"rate": "x"}), ("metric", "x"), ("id", 3), ("id", "2")]
    changes += [("parameters", 5), ("state", [])]
    changed = [json.dumps(content | {key: value}) for key, value in changes]
    for text in ("{", "[]", "{}", '{"id": "x"}', "[" * 100_000, *changed):
        path.write_text(text)
        done = tune("--local", *PROGRAM)
        assert done.code == 1
        assert "trial-2/trial.json: not JSON of a search; remove it, or start" in done.err
        assert done.err.count("\n") == 2

    path.unlink()
    assert tune("--local", *PROGRAM).code == 0
    before, again = started(project)[1], started(project)[3]
    assert len(started(project)) == 4
    assert (again["rate"], again["size"]) == (before["rate"], before["size"])


def test_a_search_of_a_clone_is_not_touched_through_a_symlink(tune, project, tmp_path):
    outside = tmp_path / "outside"
    (outside / "digits").mkdir(parents=True)
    (project / ".distlaunch").mkdir()
    link = project / ".distlaunch/tune"
    for path, target in ((link, outside), (link / "digits", outside / "digits")):
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(target)
        for words in ((), ("--new",)):
            done = tune("--local", *words, *PROGRAM)
            assert done.code == 1
            assert f"{path} is a symlink" in done.err
        assert [each.name for each in outside.rglob("*")] == ["digits"]
        path.unlink()
    trial = link / "digits/trial-1"
    trial.mkdir(parents=True)
    os.mkfifo(trial / "output.log")
    done = tune("--local", *PROGRAM)
    assert (done.code, done.err.count("output.log: ")) == (1, 1)
    assert tune("--local", "--new", "x" * 300, *PROGRAM).code == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_parallel_trials_share_the_cores(tune, project):
    done = tune("--local", "--parallel=2", "--trials=2", *PROGRAM)
    assert done.code == 0, done.err
    first, second = (set(each["cores"]) for each in started(project))
    assert first
    assert not first & second


def count_processes(word):
    """Return the number of processes with a word in their arguments."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            count += word in path.read_bytes()
    return count


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_search_resumes(project, run, number):
    secret = f"sesame-{os.getpid()}-{number}"
    words = ["tune", "--local", "--json", f"--set=env.A_KEY={secret}", *PROGRAM]
    command = [sys.executable, "-m", "distlaunch", *words]
    search = subprocess.Popen(
        command,
        cwd=project,
        env=os.environ | {"WAIT": "slow"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    folder = project / ".distlaunch/tune/digits/trial-1"
    until = time.monotonic() + 60
    while not (folder / "metrics.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.05)
    if number == signal.SIGINT:
        refused = run("tune", "--local", "--new", cwd=project)
        assert "another 'distlaunch tune' runs this search" in refused.err
        assert count_processes(secret.encode()) == 1  # as it was typed
    search.send_signal(number)
    out, err = search.communicate(timeout=60)
    if number == signal.SIGINT:
        result = load_checked("tune", out)
        assert search.returncode == 130
        assert "the same command again resumes the search" in err
        [trial] = result["trials"]
        assert (trial["state"], result["state"]) == ("STOPPED", "STOPPED")
    # The trial ends with its search, however that ended.
    while may_be_locked(folder / "task-logs/.lock"):
        assert time.monotonic() < until
        time.sleep(0.05)

    done = subprocess.run(
        command, cwd=project, capture_output=True, text=True, check=False, timeout=120
    )
    result = load_checked("tune", done.stdout)
    assert [trial["state"] for trial in result["trials"]] == ["SUCCEEDED"] * 3
    again, *others = started(project)[1:]
    assert [again["size"], *(each["size"] for each in others)] == [1, 2, 1]
    assert "env.A_KEY=(not recorded)" in result["command"]
    for path in project.rglob(".distlaunch/**/*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path


def test_ctrl_c_ends_a_search_whose_reader_takes_nothing(project):
    command = [sys.executable, "-m", "distlaunch", "tune", "--local", *PROGRAM]
    read, write = os.pipe()
    process = subprocess.Popen(command, cwd=project, stdout=write, stderr=write)
    try:
        assert os.read(read, 1)  # the search begins
        os.set_blocking(write, False)
        with suppress(BlockingIOError):
            while True:
                os.write(write, b"x")
        os.set_blocking(write, True)
        until = time.monotonic() + 60
        while not (project / "started.jsonl").exists() and time.monotonic() < until:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()
        os.close(read)
        os.close(write)


def test_without_a_tuning_section(tune, project):
    (project / "distlaunch.yaml").write_text(JOB_FILE.removesuffix(TUNING))
    for words in ((), ("--local",)):
        done = tune(*words)
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert "distlaunch.yaml: no tuning section; add one, such as tuning: {metric" in done.err


def test_a_tuning_job_and_its_trials(tune, run, project, monkeypatch):
    monkeypatch.setenv("FAIL", "fast")
    (project / "distlaunch.prices.yaml").write_text(
        "currency: USD\nus-central1: {STANDARD: {n1-standard-4: 3600}}\n"
    )
    with Cloud(project) as cloud:
        at = ("--endpoint", cloud.url, "--image=localhost:5000/digits:1")
        refused = tune(*at, "--json", "--parallel=4")
        assert load_checked("tune", refused.out)["event"] == "refused"
        assert refused.code == 1
        done = tune(*at, "--parallel=1", "--", "--epochs=1")
        assert done.code == 0, done.err
        lines = done.out.splitlines()
        heads = ["TRIAL", "rate", "size", "accuracy", "STATE", "TIME", "COST"]
        assert lines[0].split() == heads
        assert [line.split()[0] for line in lines[1:4]] == ["2", "1", "3"]
        assert lines[1].split()[-1] == "USD"
        assert float(lines[1].split()[-2]) > 0.01  # one dollar a second
        best = "distlaunch submit --set=tuning=null -- --epochs=1 --rate=slow --size=2"
        assert lines[-1].strip() == best
        assert "trial 2 (rate slow, size 2): accuracy 1 after" in done.err
        assert "trial 3 (rate fast, size 1): INFEASIBLE after" in done.err

        attached = tune("--endpoint", cloud.url, "--attach", "--json")
        result = load_checked("tune", attached.out)
        assert [trial["id"] for trial in result["trials"]] == [2, 1, 3]
        assert "status of 1" in result["trials"][2]["reason"]
        assert result["trials"][0]["currency"] == "USD"
        assert result["trials"][0]["cost"] > 0.01
        (project / "distlaunch.prices.yaml").unlink()
        notify = 'echo "$DISTLAUNCH_JOB $DISTLAUNCH_STATE" > notified'
        listed = tune("--endpoint", cloud.url, "--attach", "--notify", notify)
        assert (project / "notified").read_text() == f"{result['job']} SUCCEEDED\n"
        page = (project / ".distlaunch/jobs" / f"{result['job']}.html").read_text()
        assert "<th>COST (ESTIMATE)</th>" in page
        assert listed.out.splitlines()[0].endswith("COST (ESTIMATE)")
        (project / "elsewhere").mkdir()
        [job] = cloud.jobs("demo-project").list("hyperparameterTuningJobs")
        words = ("tune", "--endpoint", cloud.url, "--attach", job["name"])
        assert "page: " in run(*words, cwd=project / "elsewhere").err

        # What is printed trains once.
        monkeypatch.delenv("FAIL")
        monkeypatch.setenv("CLOUD_ML_HP_METRIC_FILE", str(project / "metrics"))
        jobs = cloud.jobs("demo-project")
        assert list(jobs.list("customJobs")) == []
        [_, command, *words] = best.split()
        assert run(command, *at, "--detach", *words, cwd=project).code == 0
        [job] = jobs.list("customJobs")
        args = job["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["args"]
        assert args[-3:] == ["--epochs=1", "--rate=slow", "--size=2"]


def test_a_tuning_job_is_moved_to_the_next_region(tune, project):
    with Cloud(project, faults="stockout:us-central1") as cloud:
        regions = "--set=scheduling.regions=[us-central1, us-east1]"
        image = "--image=localhost:5000/digits:1"
        done = tune("--endpoint", cloud.url, image, regions, "--json", "--parallel=3")
        assert done.code == 0, done.err
        assert "no machines in us-central1; moving the job to us-east1\n" in done.err
        result = load_checked("tune", done.out)
        assert (result["state"], len(result["trials"])) == ("SUCCEEDED", 3)


def test_the_table_is_live_on_a_terminal(project):
    code, text = run_on_terminal("tune", "--local", "--trials=2", *PROGRAM, cwd=project)
    assert code == 0
    assert "ACTIVE" in text
    assert "0 of 2 trials done" in text
    assert "1 of 2 trials done" in text
    assert "\x1b[A\x1b[2K" in text  # the lines of a table are replaced
    last = text.rpartition("\x1b[2K")[2].splitlines()
    assert last[0].split() == ["TRIAL", "rate", "size", "accuracy", "STATE", "TIME"]
    assert [line.split()[0] for line in last[1:3]] == ["2", "1"]


@pytest.mark.slow
def test_the_bundled_trainer_reports_to_the_search(run, tmp_path):
    """A trial of the starter trains with its own rate, in the cloud's way."""
    scaffold.plan(tmp_path, "digits").write(tmp_path)
    with (tmp_path / "distlaunch.yaml").open("a") as file:
        file.write(
            "tuning:\n  metric: val_accuracy\n  goal: maximize\n  trials: 1\n  algorithm: grid\n"
            "  parameters:\n    learning-rate: {type: double, values: [0.000001]}\n"
        )
    with Cloud(tmp_path) as cloud:
        options = ("--image=localhost:5000/digits:1", "--set=bucket=gs://demo-bucket", "--json")
        words = (*cloud.options("demo-project"), *options, "--", "--epochs=1")
        done = run("tune", "--no-check", "--set=cluster.workers=null", *words, cwd=tmp_path)
    assert done.code == 0, done.err
    [trial] = load_checked("tune", done.out)["trials"]
    assert (trial["parameters"], trial["state"]) == ({"learning-rate": 0.000001}, "SUCCEEDED")
    assert trial["step"] == 45
    assert 0 < trial["metric"] < 0.8  # the starter's own rate learns more
