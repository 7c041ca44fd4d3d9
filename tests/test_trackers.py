"""The code of docs/do/trackers.md, with W&B offline and MLflow on a file."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow_host

from distlaunch import scaffold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIT = '        run.fit(network, callbacks(), getattr(model, "train_step", None))\n'


@pytest.fixture(scope="module")
def host() -> Iterator[tensorflow_host.PythonHost]:
    """A Python that has imported the trackers, too, which takes each task seconds."""
    imports = (*tensorflow_host.COMMAND_IMPORTS, "tensorflow", "keras", "mlflow", "wandb")
    with tensorflow_host.running(*imports) as running:
        yield running


@pytest.fixture
def local(host, tmp_path) -> Callable[..., tensorflow_host.Result]:
    """Run `distlaunch local`."""

    def run(*words: str) -> tensorflow_host.Result:
        environment = environment_of(tmp_path)
        done = host.run("distlaunch", "local", *words, cwd=tmp_path, env=environment)
        assert done.code == 0, done.text
        return done

    return run


@pytest.fixture
def tracked_runs(host, tmp_path) -> Callable[[], dict[str, Any]]:
    """Return the runs that the trackers recorded."""

    def read() -> dict[str, Any]:
        tests = Path(__file__).parent
        done = host.run("tracked_runs", str(tmp_path), cwd=tests, env=environment_of(tmp_path))
        assert done.code == 0, done.text
        return json.loads(done.out)

    return read


@pytest.fixture
def code(checkout) -> list[str]:
    """The document's blocks of Python."""
    text = (checkout / "docs/do/trackers.md").read_text(encoding="utf-8")
    return [
        dedent(block)
        for block in re.findall(r"^ *```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    ]


def environment_of(folder: Path) -> dict[str, str]:
    """Return variables with which neither connects to a server or writes into the home folder."""
    return os.environ | {
        "WANDB_MODE": "offline",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_CACHE_DIR": f"{folder}/cache",
        "WANDB_CONFIG_DIR": f"{folder}/config",
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def block_with(code: list[str], text: str) -> str:
    [block] = [block for block in code if text in block]
    return block


@pytest.mark.docs
def test_a_resumed_run_is_one_run_of_each_tracker(code, local, tracked_runs, tmp_path):
    scaffold.plan(tmp_path, "digits").write(tmp_path)
    for name in ("wandb", "mlflow"):
        block = block_with(code, f"def log_to_{name}")
        (tmp_path / f"trainer/{name}_logs.py").write_text(block)
    task = tmp_path / "trainer/task.py"
    program = task.read_text()
    assert FIT in program
    both = indent(block_with(code, "trackers = "), " " * 8)
    task.write_text(program.replace(FIT, both))

    local("--workers=2", "--", "--epochs=1")
    done = local("--workers=1", "--resume", "--", "--epochs=2")
    assert "callbacks start from scratch" not in done.text

    [summary] = (tmp_path / ".distlaunch/local").glob("*/summary.json")
    epochs = json.loads(summary.read_text())["epochs"]
    logs = [{"epoch": each["epoch"], **each["logs"]} for each in epochs]
    assert [set(each) for each in logs] == [
        {"epoch", "loss", "accuracy", "val_loss", "val_accuracy"}
    ] * 2
    job_dir = summary.parent
    runs = tracked_runs()

    first, second = runs["wandb"]
    assert first["history"] + second["history"] == logs
    assert [len(each["history"]) for each in (first, second)] == [1, 1]
    assert first["id"] == second["id"]
    assert first["name"] == second["name"] == job_dir.name
    assert first["exit_code"] == second["exit_code"] == 0
    assert first["config"]["epochs"] == 1
    assert second["config"].items() >= {"epochs": 2, "checkpoint_every": 0}.items()

    [run] = runs["mlflow"]
    assert (run["name"], run["status"]) == (job_dir.name, "FINISHED")
    assert run["params"].items() >= {"epochs": "1", "checkpoint_every": "0"}.items()
    assert run["tags"]["job_dir"] == str(job_dir)
    names = set(logs[0]) - {"epoch"}
    assert run["metrics"] == {
        name: [[each["epoch"], each[name]] for each in logs] for name in names
    }


@pytest.mark.docs
def test_only_the_chief_of_a_fit_script_has_a_run(code, local, tracked_runs, tmp_path):
    (tmp_path / "train.py").write_text(block_with(code, "model.fit("))
    job = "name: digits\nscript: train.py\ncluster: {chief: {machine: n1-standard-4}}\n"
    (tmp_path / "distlaunch.yaml").write_text(job)
    local("--workers=2", "--job-dir=job")
    [attempt] = tracked_runs()["wandb"]
    epochs = json.loads((tmp_path / "job/summary.json").read_text())["epochs"]
    logs = [{"epoch": each["epoch"], **each["logs"]} for each in epochs]
    assert (attempt["id"], attempt["history"]) == ("job", logs)
