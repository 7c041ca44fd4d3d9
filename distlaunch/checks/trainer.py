"""The bundled trainer in a project: find it, read its arguments, and train one step of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.job.load import FILE_NAME
from distlaunch.text import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job
    from distlaunch.submit.plan import LaunchRequest

TRAINER_LIBRARY = "distributed"
"""The folder of the trainer library, beside the job's module."""

FLAGS = ("--resume", "--sync-batch-norm", "--allow-cpu", "--gpu-memory-growth", "--debug")
"""The trainer's options that take no value."""

RUN_TIMEOUT = 1_800  # seconds, as all of the validation data are read
ONE_STEP = ("--epochs=1", "--steps-per-epoch=1", "--no-resume")

_NUMBER = re.compile(r"-[0-9.]+", re.ASCII)
_VERSION = re.compile(r"""^__version__ = ["'](.+)["']""", re.MULTILINE)
_ERROR = "error: "  # in the line with the reason of a failure


@dataclass(frozen=True, slots=True)
class Trainer:
    """The trainer that `init` copied into a project.

    `package` is the name of its package, `version` that of the trainer library. `options` are the
    job's arguments by option (``--global-batch-size``): a flag is true, or false with ``--no-``.
    """

    folder: Path
    package: str
    version: str
    options: Mapping[str, str | bool]

    @property
    def data(self) -> Path:
        """The module with the user's data."""
        return self.folder / "data.py"

    @property
    def model(self) -> Path:
        """The module with the user's model."""
        return self.folder / "model.py"


def find_trainer(order: LaunchRequest) -> Trainer | None:
    """Return the bundled trainer, None if the job's program is another one."""
    arguments = program_arguments(order.job)
    package = order.job.module.rpartition(".")[0]
    if arguments is None or not package:
        return None
    folder = order.folder.joinpath(*package.split("."))
    version = _version(folder / TRAINER_LIBRARY / "__init__.py")
    return Trainer(folder, package, version, parse_options(arguments)) if version else None


def parse_options(arguments: Iterable[str]) -> dict[str, str | bool]:
    """Return the options among a program's arguments; the last one of an option wins."""
    options: dict[str, str | bool] = {}
    pending = ""  # the option whose value may be the next word
    for word in arguments:
        name, equals, value = word.partition("=")
        if pending and (not word.startswith("-") or _NUMBER.fullmatch(word)):
            options[pending] = word
            pending = ""
        elif word.startswith("--"):
            is_negated = name.startswith("--no-") and f"--{name[5:]}" in FLAGS
            options[f"--{name[5:]}" if is_negated else name] = value if equals else not is_negated
            pending = "" if equals or is_negated or name in FLAGS else name
    return options


def program_arguments(job: Job) -> tuple[str, ...] | None:
    """Return the arguments of the job's module, None if the chief runs another program."""
    program = job.cluster.chief.program
    if program is None:
        return job.args
    if program.image or program.command or program.module:
        return None
    return program.args


def _version(file: Path) -> str | None:
    """Return the version in a module, which is not executed."""
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    match = _VERSION.search(text)
    return match[1] if match else None


def run_one_step(order: LaunchRequest, trainer: Trainer | None) -> list[Problem]:
    """Train one step in a process of this machine, in a temporary folder; it records the data."""
    skipped = _reason_to_skip(order, trainer)
    if skipped:
        return [skipped]
    with tempfile.TemporaryDirectory(prefix="distlaunch-check-") as folder:
        args = [*order.job.args, *ONE_STEP, f"--job-dir={folder}"]
        overrides = [*order.overrides, f"module={order.job.module}"]  # --config may name another
        options = [word for override in overrides for word in ("--set", override)]
        command = ["distlaunch", "local", "--workers=1", *options, "--", *args]
        reason = _failure([sys.executable, "-m", *command], order.folder)
        if reason is None and not Path(folder, "summary.json").exists():
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
            timeout=RUN_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"timed out after {duration(RUN_TIMEOUT)}"
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line.partition(_ERROR)[2].strip() for line in lines if _ERROR in line]
    return f"exit code {done.returncode}: {(errors or lines[-1:] or ['no output'])[0]}"
