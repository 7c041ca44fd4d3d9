"""One step of training on this machine, as far as that can be had here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.job.project_file import FILE_NAME
from distlaunch.ui.console import duration

if TYPE_CHECKING:
    from distlaunch.checks.problem import Problem
    from distlaunch.checks.trainer import Trainer
    from distlaunch.submit.plan import Order

MOST = 1_800  # seconds for it, with the whole of the validation data
SUMMARY = "summary.json"  # which the trainer leaves in its job folder at the end
ONE_STEP = ("--epochs=1", "--steps-per-epoch=1", "--no-resume")
_MARK = "error: "  # in the line that says what went wrong
_IN_VAIN = "nothing was run"


def problems(order: Order, trainer: Trainer | None) -> list[Problem]:
    """Train one step on one process of this machine, in a folder that is then removed.

    TensorFlow is imported there, and never here.

    Parameters
    ----------
    order
        What is to be launched.
    trainer
        The bundled trainer, None where the program is another one: nothing is known of its options.
    """
    if trainer is None:
        what = f"the program is not the trainer that 'distlaunch init' writes, so {_IN_VAIN}"
        return [warning("run-skipped", "module", what, "try it with 'distlaunch local'")]
    if not (order.folder / FILE_NAME).exists():
        what = f"'distlaunch local' reads {FILE_NAME}, which is not there, so {_IN_VAIN}"
        return [warning("run-skipped", "module", what, "write one, as 'distlaunch init' does")]
    if find_spec("tensorflow") is None:
        what = f"TensorFlow is not installed beside distlaunch, so {_IN_VAIN}"
        return [warning("run-skipped", "module", what, "run \"pip install 'distlaunch[local]'\"")]
    with tempfile.TemporaryDirectory(prefix="distlaunch-check-") as folder:
        words = [*order.job.args, *ONE_STEP, f"--job-dir={folder}"]
        module = f"module={order.job.module}"  # which a file of --config may have said
        sets = [word for each in (*order.sets, module) for word in ("--set", each)]
        command = [sys.executable, "-m", "distlaunch", "local", "--workers=1", *sets, "--", *words]
        why = _run(command, order.folder)
        if why is None and not Path(folder, SUMMARY).exists():
            why = "one step on one process ended with code 0 before it was through"
    remedy = f"see all of it with 'distlaunch local --workers 1 -- {' '.join(ONE_STEP)}'"
    return [error("run-failed", "module", why, remedy)] if why else []


def _run(command: list[str], folder: Path) -> str | None:
    """Run a command in a folder and return why it failed, if it did."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=MOST,
        )
    except subprocess.TimeoutExpired:
        return f"one step on one process was not through after {duration(MOST)}"
    if done.returncode == 0:
        return None
    return f"one step on one process ended with code {done.returncode}: {_told(done)}"


def _told(done: subprocess.CompletedProcess[str]) -> str:
    """Return what the trainer, or else the launcher, says of it."""
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    telling = [line.partition(_MARK)[2] for line in lines if _MARK in line]
    return next(iter(telling or lines[-1:]), "it wrote nothing").strip()
