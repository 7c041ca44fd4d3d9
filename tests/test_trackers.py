"""The code of docs/trackers.md, with W&B offline and MLflow on a file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from distlaunch import scaffold

FIT = '        run.fit(network, callbacks(), getattr(model, "train_step", None))\n'
READER = Path(__file__).with_name("tracked_runs.py")


@pytest.fixture
def code(checkout) -> list[str]:
    """The document's blocks of Python."""
    text = (checkout / "docs/trackers.md").read_text(encoding="utf-8")
    return [
        dedent(block)
        for block in re.findall(r"^ *```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    ]


def environment(folder: Path) -> dict[str, str]:
    """Return variables with which neither connects to a server or writes into the home folder."""
    return os.environ | {
        "WANDB_MODE": "offline",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_CACHE_DIR": f"{folder}/cache",
        "WANDB_CONFIG_DIR": f"{folder}/config",
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def tracked_runs(folder: Path) -> dict[str, Any]:
    command = [sys.executable, READER, folder]
    done = subprocess.run(
        command, env=environment(folder), check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def block_with(code: list[str], text: str) -> str:
    [block] = [block for block in code if text in block]
    return block


@pytest.mark.slow
def test_a_resumed_run_is_one_run_of_each_tracker(code, tensorflow, tmp_path):
    scaffold.plan(tmp_path, "digits").write(tmp_path)
    for name in ("wandb", "mlflow"):
        block = block_with(code, f"def log_to_{name}")
        (tmp_path / f"trainer/{name}_logs.py").write_text(block)
    task = tmp_path / "trainer/task.py"
    program = task.read_text()
    assert FIT in program
    both = indent(block_with(code, "trackers = "), " " * 8)
    task.write_text(program.replace(FIT, both))

    for words in (
        ("--workers=2", "--", "--epochs=1"),
        ("--workers=1", "--resume", "--", "--epochs=2"),
    ):
        done = tensorflow.run(
            "distlaunch", "local", *words, cwd=tmp_path, env=environment(tmp_path)
        )
        assert done.code == 0, done.text
        assert "callbacks start from scratch" not in done.text

    [summary] = (tmp_path / ".distlaunch/local").glob("*/summary.json")
    epochs = json.loads(summary.read_text())["epochs"]
    logs = [{"epoch": each["epoch"], **each["logs"]} for each in epochs]
    assert [set(each) for each in logs] == [
        {"epoch", "loss", "accuracy", "val_loss", "val_accuracy"}
    ] * 2
    job_dir = summary.parent
    runs = tracked_runs(tmp_path)

    first, second = runs["wandb"]
    assert first["history"] + second["history"] == logs
    assert [len(each["history"]) for each in (first, second)] == [1, 1]
    assert first["id"] == second["id"]
    assert first["name"] == second["name"] == job_dir.name
    assert first["exit_code"] == second["exit_code"] == 0
    assert first["config"]["epochs"] == 1
    assert second["config"].items() >= {"epochs": 2, "export_metric": "val_loss"}.items()

    [run] = runs["mlflow"]
    assert (run["name"], run["status"]) == (job_dir.name, "FINISHED")
    assert run["params"].items() >= {"epochs": "1", "export_metric": "val_loss"}.items()
    assert run["tags"]["job_dir"] == str(job_dir)
    names = set(logs[0]) - {"epoch"}
    assert run["metrics"] == {
        name: [[each["epoch"], each[name]] for each in logs] for name in names
    }


@pytest.mark.docs
def test_only_the_chief_of_a_fit_script_has_a_run(code, tensorflow, tmp_path):
    (tmp_path / "train.py").write_text(block_with(code, "model.fit("))
    job = "name: digits\nscript: train.py\ncluster: {chief: {machine: n1-standard-4}}\n"
    (tmp_path / "distlaunch.yaml").write_text(job)
    words = ("local", "--workers=2", "--job-dir=job")
    done = tensorflow.run("distlaunch", *words, cwd=tmp_path, env=environment(tmp_path))
    assert done.code == 0, done.text
    [attempt] = tracked_runs(tmp_path)["wandb"]
    epochs = json.loads((tmp_path / "job/summary.json").read_text())["epochs"]
    logs = [{"epoch": each["epoch"], **each["logs"]} for each in epochs]
    assert (attempt["id"], attempt["history"]) == ("job", logs)
