"""`check --run`: one step of training on this machine, which also records the data."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.job.load import FILE_NAME
from distlaunch.text import duration

if TYPE_CHECKING:
    from distlaunch.checks.problem import Problem
    from distlaunch.checks.trainer import Trainer
    from distlaunch.submit.plan import LaunchRequest

TIMEOUT = 1_800  # seconds, as all of the validation data are read
ONE_STEP = ("--epochs=1", "--steps-per-epoch=1", "--no-resume")
_SUMMARY = "summary.json"  # written by the trainer at the end
_ERROR = "error: "  # in the line with the reason of a failure


def problems(order: LaunchRequest, trainer: Trainer | None) -> list[Problem]:
    """Train one step in one process of this machine, in a temporary job folder.

    Parameters
    ----------
    trainer
        The bundled trainer; None for another program, whose options are unknown.
    """
    skipped = _reason_to_skip(order, trainer)
    if skipped:
        return [skipped]
    with tempfile.TemporaryDirectory(prefix="distlaunch-check-") as folder:
        args = [*order.job.args, *ONE_STEP, f"--job-dir={folder}"]
        overrides = [
            *order.overrides,
            f"module={order.job.module}",
        ]  # --config may name another module
        options = [word for override in overrides for word in ("--set", override)]
        command = [
            sys.executable,
            "-m",
            "distlaunch",
            "local",
            "--workers=1",
            *options,
            "--",
            *args,
        ]
        reason = _failure(command, order.folder)
        if reason is None and not Path(folder, _SUMMARY).exists():
            reason = "exit code 0 before the end of training"
    if reason is None:
        return []
    remedy = f"see its output with 'distlaunch local --workers 1 -- {' '.join(ONE_STEP)}'"
    return [error("run-failed", "module", f"one step in one process: {reason}", remedy)]


def _reason_to_skip(order: LaunchRequest, trainer: Trainer | None) -> Problem | None:
    if trainer is None:
        reason = "the program is not the trainer that 'distlaunch init' writes"
        remedy = "try it with 'distlaunch local'"
    elif not (order.folder / FILE_NAME).exists():
        reason = f"'distlaunch local' needs {FILE_NAME}, which is missing"
        remedy = "write one with 'distlaunch init'"
    elif find_spec("tensorflow") is None:
        reason = f"TensorFlow is not installed in the environment of {sys.executable}"
        remedy = "run \"pip install 'distlaunch[local]'\""
    else:
        return None
    return warning("run-skipped", "module", f"{reason}: nothing was run", remedy)


def _failure(command: list[str], folder: Path) -> str | None:
    """Run a command in a folder and return why it failed, None if it did not."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"timed out after {duration(TIMEOUT)}"
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line.partition(_ERROR)[2].strip() for line in lines if _ERROR in line]
    return f"exit code {done.returncode}: {(errors or lines[-1:] or ['no output'])[0]}"
