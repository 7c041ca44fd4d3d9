"""`distlaunch compare` as its user meets it; verdicts are in tests/local/compare."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distlaunch import scaffold

from ..json_schemas import load_checked  # noqa: TID252 - tests are no package
from ..small_datasets import write_idx  # noqa: TID252
from ..tensorflow_host import Result  # noqa: TID252
from ..trainer_skeleton.conftest import environment_outside_clusters  # noqa: TID252
from .terminal import run_on_terminal

JOB = """\
name: digits
module: job.task
args: [--epochs, "2", --global-batch-size, "96"]
cluster:
  chief: {machine: n1-standard-4}
  workers: {machine: n1-standard-4, count: 1}
"""
# Writes what the trainer does: the speeds of SPEEDS by the number of workers, in turn.
PROGRAM = """\
import json, os, pathlib, sys
config = json.loads(os.environ["TF_CONFIG"]) if "TF_CONFIG" in os.environ else {}
workers = sum(map(len, config.get("cluster", {"chief": [1]}).values()))
folder = pathlib.Path(os.environ["AIP_MODEL_DIR"]).parent
if config.get("task", {}).get("type", "chief") == "chief":
    with open("calls", "a") as calls:
        print(folder.name, *sys.argv[1:], file=calls)
    speed = json.loads(os.environ["SPEEDS"])[str(workers)].pop(int(folder.name[-1]) - 1)
    if not speed:
        raise SystemExit("no speed, exit")
    seconds = 96 / speed
    parts = {"input": 0.1, "compute": 0.9 / workers, "exchange": 0.5 - 0.5 / workers, "wait": 0}
    timing = {"steps": 9, "total": seconds, "slowest": {"chief": 1.0}, "tasks": {}}
    timing |= {name: part * seconds for name, part in parts.items()}
    summary = {"examples_per_second": speed, "global_batch": 96, "timing": timing}
    (folder / "summary.json").write_text(json.dumps(summary | {"gradient_bytes": 4e6}))
"""
CORES = len(os.sched_getaffinity(0))
USED = CORES // 2 * 2  # by two workers with equally many cores
RUN = ["--", "python", "job/task.py"]
SPEEDS = {"1": [1000, 1200, 1100], "2": [800, 700, 600], "3": [500, 0]}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose module, which is a program too, has these speeds."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job/task.py").write_text(PROGRAM)
    (tmp_path / "distlaunch.yaml").write_text(JOB)
    monkeypatch.setenv("SPEEDS", json.dumps(SPEEDS))
    return tmp_path


@pytest.fixture
def compare(cli, project):
    """Run `distlaunch compare` in the project."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return cli("compare", *words, cwd=project)

    return run


def calls(project: Path) -> list[str]:
    """Return the runs of the program, without those of one worker on the cores of several."""
    lines = (project / "calls").read_text().splitlines()
    return [line for line in lines if "-on-" not in line]


def loaded(text: str) -> dict:
    """Return the JSON output, without one worker on the cores of several."""
    data = load_checked("compare", text)
    return data | {"variants": [v for v in data["variants"] if " on " not in v["name"]]}


def folder_of(project: Path) -> Path:
    (folder,) = (project / ".distlaunch/compare").iterdir()
    return folder


def test_table_sentence_and_files(compare, tmp_path):
    done = compare("1,2", "--rounds", "3", *RUN, "--seed", "1")
    assert done.returncode == 0, done.stderr
    table, chart, sentence = done.stdout.split("\n\n")
    bars = [line.count("#") for line in chart.splitlines()]
    assert bars == [40, round(40 * 700 / 1100), 40]
    assert chart.splitlines()[1].endswith("  700 examples/s")
    head, one, two, alone = table.splitlines()
    assert head.split()[:4] == ["variant", "examples/s", "min-max", "speed-up"]
    assert one.split()[:6] == ["1", "worker", "1,100", "1,000-1,200", "1.00", "87.27"]
    assert two.split()[:6] == ["2", "workers", "700", "600-800", "0.64", "32"]
    # One worker has the same speeds on the cores of two.
    assert alone.split()[:6] == ["1", "worker", "on", str(USED), "cores", "1,100"]
    assert sentence.startswith("It does not pay here: 2 workers train 0.64 times as fast as 1 work")
    runs = [f"{n}-{name}" for n in (1, 2, 3) for name in ("1-worker", "2-workers")]
    order = [f"{run[2:]}-{run[0]} --seed 1" for run in runs]
    assert calls(tmp_path) == order  # A B A B
    lines = [line for line in done.stderr.splitlines() if "round" in line]
    assert len(lines) == 9
    assert re.search(r"round 3 of 3 · 2 workers: 600 examples/s \(\d\.\d s in all\)", lines[-2])
    folder = folder_of(tmp_path)
    data = load_checked("compare", (folder / "compare.json").read_text())
    page = (folder / "compare.html").read_text()
    assert json.loads(re.search('id="data">(.*)</script>', page)[1]) == data
    assert not re.search('(src|href)="[^#]', page)  # it opens offline
    behind = re.findall('<div>([^<]+)</div><div class="behind">([^<]+)</div>', page)
    assert behind[:2] == [("1 worker", "1,100"), ("2 workers", "700")]
    assert behind[3:5] == [("1 worker", "87.3 ms"), ("2 workers", "137 ms")]
    assert "<dd>distlaunch compare 1,2 --rounds 3 -- python job/task.py --seed 1</dd>" in page
    assert f"page: {folder.relative_to(tmp_path) / 'compare.html'}\n" in done.stderr


def test_a_failing_variant_is_reported_and_the_others_go_on(compare, tmp_path):
    done = compare("--json", "3,1,2", *RUN)
    assert done.returncode == 1
    data = loaded(done.stdout)
    three, one, two = data["variants"]
    assert three["failure"]["text"] == "exit code 1"
    assert len(three["runs"]) == 1
    assert (Path(three["failure"]["log"]) / "attempt-1/chief.log").read_text() == "no speed, exit\n"
    assert "2 of 2 · 3 workers: exit code 1; logs:" in done.stderr
    assert "    no speed, exit\n" in done.stderr
    assert (one["failure"], len(one["runs"]), len(two["runs"])) == (None, 2, 2)
    assert two["efficiency"] == pytest.approx(750 / 1100 / 2)
    assert three["shares_cores"] == (CORES < 3)
    assert data["cores_per_worker"] == max(1, CORES // 3)


def test_the_trainer_gets_one_global_batch_or_those_to_compare(tensorflow, project):
    for line in ("1,2", "--batch-sizes=64,256 -- --global-batch-size 7 --seed=1"):
        words = ["compare", "--rounds=1", *line.split()]
        done = tensorflow.run("distlaunch", *words, cwd=project, env=os.environ)
        assert done.code == 0, done.err
    assert calls(project) == [
        "1-worker-1 --epochs 2 --global-batch-size=96",
        "2-workers-1 --epochs 2 --global-batch-size=96",
        "2-workers-global-batch-64-1 --epochs 2 --seed=1 --global-batch-size=64",
        "2-workers-global-batch-256-1 --epochs 2 --seed=1 --global-batch-size=256",
    ]


def test_a_full_disk_loses_the_files_and_not_the_figures(run, project, monkeypatch):
    def fail(path, *_):
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr("distlaunch.cli.compare.atomic_write", fail)
    done = run("compare", "1,2", "--rounds=1", *RUN, cwd=project)
    problem = f"{folder_of(project)}: the report cannot be written (no space left on device)"
    assert done.err.endswith(f"distlaunch: error: {problem}\n")
    assert done.code == 1
    assert "It does not pay here" in done.out


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    (tmp_path / "task.py").write_text(PROGRAM)
    (tmp_path / "slow.py").write_text(
        "import os, time, runpy\n"
        "if '1-worker-2' in os.environ['AIP_MODEL_DIR']:\n"
        "    open('up', 'w').close()\n"
        "    time.sleep(600)\n"
        "runpy.run_path('task.py')\n"
    )
    words = ["compare", "--json", "1,2", "--", "python", "slow.py"]
    process = subprocess.Popen(
        [sys.executable, "-m", "distlaunch", *words],
        cwd=tmp_path,
        env=os.environ | {"SPEEDS": json.dumps(SPEEDS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while not (tmp_path / "up").exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    data = loaded(out)
    assert data["interrupted"]
    assert [len(each["runs"]) for each in data["variants"]] == [1, 1]
    assert data["variants"][1]["speedup"] == pytest.approx(0.8)
    assert json.loads((folder_of(tmp_path) / "compare.json").read_text())["interrupted"]


def test_a_terminal_shows_the_run_in_a_line_that_is_replaced(project):
    code, text = run_on_terminal("compare", "1,2", "--rounds=1", *RUN, cwd=project)
    assert code == 0
    assert "\r\x1b[2Kround 1 of 1 · 2 workers · starting" in text
    assert text.index("It does not pay here") > text.rindex("\x1b[2K")


STARTERS = {  # and what to compare
    # Steps so short that their exchange costs more than the work, however busy the machine is.
    "digits": (
        *("1,2", "--rounds=1", "--"),
        *("--epochs=3", "--global-batch-size=4", "--steps-per-epoch=60"),
    ),
    # A course's example, 13.6 s, 25.9 s and 39.0 s with 1, 2 and 3 replicas of a machine with two
    # cores. Of larger batches it depends on the machine whether several workers pay.
    "fashion-mnist": (
        *("1,2,3", "--"),
        *("--epochs=3", "--global-batch-size=6", "--steps-per-epoch=100"),
    ),
}


if os.environ.get("DISTLAUNCH_TEST_LAWS"):  # make laws

    @pytest.mark.slow
    @pytest.mark.parametrize("starter", STARTERS)
    def test_replicas_of_a_small_model_on_one_machine_do_not_pay(tensorflow, tmp_path, starter):
        project = tmp_path / "project"
        scaffold.plan(project, starter).write(project)
        words = ["compare", "--json", *STARTERS[starter]]
        env = environment_outside_clusters() | {"KERAS_HOME": str(tmp_path)}
        if starter == "digits":
            done = tensorflow.run("distlaunch", *words, cwd=project, env=env)
        else:  # Keras reads KERAS_HOME when it is imported
            write_idx(tmp_path / "datasets/fashion-mnist", {"train": 6_000, "t10k": 64})
            argv = [sys.executable, "-m", "distlaunch", *words]
            process = subprocess.run(
                argv, cwd=project, env=env, capture_output=True, text=True, check=False
            )
            done = Result(process.returncode, process.stdout, process.stderr)
        assert done.code == 0, done.err
        data = load_checked("compare", done.out)
        by_name = {each["name"]: each for each in data["variants"]}
        one, two = by_name["1 worker"], by_name["2 workers"]
        assert len({each["global_batch"] for each in data["variants"]}) == 1
        assert one["timing"]["exchange"] == one["timing"]["wait"] == 0 < two["timing"]["exchange"]
        assert two["efficiency"] < 1
        causes = "the exchange|waiting for|a worker computes|2 workers share"
        assert re.match(
            r"It does not pay here: \d workers train \d\.\d\d times as fast as 1 worker(?: on \d+ "
            rf"cores)?, because ({causes}).*\. [A-Z-]",
            data["verdict"]["text"],
        )
        if starter == "digits":
            runs = [json.loads(p.read_text()) for p in Path(data["folder"]).glob("*/summary.json")]
            assert len(runs) >= 2
            losses = {1: set(), 2: set()}
            for run in runs:
                assert [e["examples"] for e in run["epochs"]] == [240, 240, 240]
                values = [round(e["logs"]["val_loss"], 4) for e in run["epochs"]]
                losses[len(run["tasks"])].add(tuple(values))
            # All have trained on the same batches.
            ((first, *_),) = losses[1]
            # With two workers, later epochs differ by float32 rounding, which Adam amplifies.
            ((first_of_two, *_),) = losses[2]
            assert first_of_two == pytest.approx(first, abs=1e-4)
