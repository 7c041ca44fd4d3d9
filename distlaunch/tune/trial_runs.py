"""A search whose trials are started here: each is a `distlaunch local`, or on Slurm a `submit`.

The folder has ``search.json``, which identifies the search, and a folder ``trial-N`` for each
trial: its ``trial.json``, the metric file, the output, and what a job folder has. The same command
again resumes the search from them.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import select
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from distlaunch import files
from distlaunch.errors import DistlaunchError, os_reason
from distlaunch.files import display_path
from distlaunch.job.trial import ACTIVE, INFEASIBLE, STOPPED, SUCCEEDED, Trial
from distlaunch.local.host_resources import NO_GPU, split_evenly, this_machine
from distlaunch.local.run_folder import ERRORS, METRICS, OUTPUT, TRIAL
from distlaunch.python_command import distlaunch_command, on_stdin
from distlaunch.redaction import redact_words
from distlaunch.stop_signals import StopSignals
from distlaunch.task_files import read_metrics
from distlaunch.tune.search import Observation, next_point, values_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from distlaunch.job.model import Job, Tuning
    from distlaunch.tune.search import Point

_LOCK = ".lock"  # in the folder of a search
_LOOK = 0.2  # seconds between two looks at the trials
_ERROR = "error: "  # in the line with the reason of a failure


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A search whose trials run on this machine, or as jobs on Slurm."""

    project: Path
    folder: Path
    job: Job
    tuning: Tuning
    options: tuple[str, ...]  # of `distlaunch local` or `submit`, such as --workers=2
    words: tuple[str, ...]  # after --
    is_trainer: bool = False  # which reports all its metrics at the end of each epoch
    command: Literal["local", "submit"] = "local"

    @property
    def base(self) -> Path:
        """The folder below which no part of the search's folder may be a symlink."""
        return self.project if self.command == "local" else self.folder.parents[1]


@dataclass(slots=True)
class _Run:
    """A trial, its point, and its process while it runs in a share of the machine."""

    trial: Trial
    point: Point
    process: subprocess.Popen[bytes] | None = None
    slot: int = 0
    started: float = 0.0  # monotonic
    before: float = 0.0  # seconds that it ran before it was interrupted


class TrialRuns:
    """Runs the trials of a plan, `tuning.parallel_trials` at once, and resumes earlier ones."""

    def __init__(self, plan: SearchPlan) -> None:
        self._plan = plan
        self._folder = plan.folder
        self._tuning = plan.tuning
        self._runs: dict[int, _Run] = {}
        self._free = list(range(min(plan.tuning.parallel_trials, plan.tuning.trials)))
        machine = this_machine(plan.job.env) if plan.command == "local" else None
        self._cores = split_evenly(machine.cores, len(self._free)) if machine else None
        has_gpus = machine is not None and machine.gpus
        self._gpus = split_evenly(machine.gpus, len(self._free)) if machine and has_gpus else None
        self._signals: list[int] = []

    @property
    def trials(self) -> list[Trial]:
        """The trials so far, by their numbers."""
        return [run.trial for run in self._runs.values()]

    def run(
        self, on_change: Callable[[Sequence[Trial]], None], on_interrupt: Callable[[], None]
    ) -> int | None:
        """Run the trials that are missing; call `on_change` with all of them now and then.

        `on_interrupt` is called at the first signal that ends the search, in its handler.
        Return 128 + n if signal n has interrupted the search. DistlaunchError is raised if the
        folder is of another search, is in use, or cannot be written.
        """
        with _errors_of(self._folder):
            files.make_folder(self._folder, below=self._plan.base)
            with files.lock(self._folder / _LOCK, wait=False):
                self._open()
                with StopSignals(on_interrupt) as signals:
                    signals.at_second = lambda: self._stop_all(signal.SIGTERM)
                    try:
                        self._run_all(signals, on_change)
                    finally:
                        self._stop_all(signal.SIGKILL)
        return 128 + self._signals[0] if self._signals else None

    def _run_all(self, signals: StopSignals, on_change: Callable[[Sequence[Trial]], None]) -> None:
        on_change(self.trials)
        while True:
            while self._free and not self._signals and self._start_next():
                pass
            running = [run for run in self._runs.values() if run.process]
            if not running:
                return
            select.select([signals], [], [], _LOOK)
            received = signals.received()
            if received and not self._signals:
                self._stop_all(signal.SIGINT)
            self._signals += received
            for run in running:
                self._look_at(run)
            on_change(self.trials)

    def _start_next(self) -> bool:
        """Start an interrupted trial or a new one; return False if there is none."""
        stopped = [run for run in self._runs.values() if run.trial.state == STOPPED]
        if stopped:
            self._start(stopped[0])
            return True
        number = next(number for number in itertools.count(1) if number not in self._runs)
        if number > self._tuning.trials:
            return False
        earlier = [Observation(run.point, _result_of(run.trial)) for run in self._runs.values()]
        point = next_point(self._tuning, number, earlier)
        if point is None:
            return False
        run = _Run(Trial(number, values_at(self._tuning, point), STOPPED), point)
        self._runs[number] = run
        self._start(run)
        return True

    def _start(self, run: _Run) -> None:
        project = self._plan.project
        folder = files.make_folder(self._trial_folder(run), below=self._plan.base)
        run.slot, run.started = self._free.pop(0), time.monotonic()
        run.before = run.trial.seconds or 0.0
        run.trial = replace(run.trial, state=ACTIVE, seconds=run.before)
        self._save(run)
        command = self._plan.command
        more = ("--no-check", "--cancel-on-interrupt") if command == "submit" else ()
        argv = ["--quiet", command, f"--job-dir={folder}", *more, *self._plan.options]
        argv += ["--", *self._plan.words, *run.trial.options]
        with (
            files.open_output(folder / OUTPUT, "ab") as out,
            files.open_output(folder / ERRORS, "wb") as err,
            on_stdin(argv) as stdin,
            _pinned(self._cores[run.slot] if self._cores else ()),
        ):
            run.process = subprocess.Popen(
                distlaunch_command(),
                cwd=project,
                env=self._environment(run),
                stdin=stdin,
                stdout=out,
                stderr=err,
                start_new_session=True,  # Ctrl-C is handled here, once for all trials
            )

    def _environment(self, run: _Run) -> Mapping[str, str]:
        variables = {
            "CLOUD_ML_HP_METRIC_FILE": str(self._trial_folder(run) / METRICS),
            "CLOUD_ML_TRIAL_ID": str(run.trial.id),
            **({"DISTLAUNCH_LOCAL_TRIAL": "1"} if self._plan.command == "local" else {}),
        }
        if self._gpus is not None:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(self._gpus[run.slot]) or NO_GPU
        return os.environ | variables

    def _look_at(self, run: _Run) -> None:
        """Read a running trial's metric, and its result if it has ended."""
        if run.process is None:
            return
        code = run.process.poll()
        lines = ""
        with suppress(OSError, ValueError):
            lines = files.read_regular(self._trial_folder(run) / METRICS).decode("utf-8", "replace")
        value, step, names = _read_metric(lines, self._tuning.metric)
        metric = value if value is not None and math.isfinite(value) else None
        if names and self._tuning.metric not in names and self._is_first(code):
            raise DistlaunchError(
                f"tuning.metric: {_no_result(self._tuning, value, names)}; correct it, and search "
                "with --new"
            )
        seconds = run.before + time.monotonic() - run.started
        run.trial = replace(run.trial, metric=metric, step=step, seconds=seconds)
        if code is None:
            return
        run.process = None
        self._free.append(run.slot)
        if self._signals and code:
            run.trial = replace(run.trial, state=STOPPED)
        elif code == 0 and metric is not None:
            run.trial = replace(run.trial, state=SUCCEEDED)
        else:
            reason = self._reason(run, code) if code else _no_result(self._tuning, value, names)
            run.trial = replace(run.trial, state=INFEASIBLE, metric=None, step=None, reason=reason)
        self._save(run)

    def _is_first(self, code: int | None) -> bool:
        """Whether the metrics of a trial are complete, and no trial had the search's metric."""
        is_complete = code == 0 or (code is None and self._plan.is_trainer)
        return is_complete and all(trial.metric is None for trial in self.trials)

    def _reason(self, run: _Run, code: int) -> str:
        folder = self._trial_folder(run)
        lines = files.read_regular(folder / ERRORS).decode("utf-8", "replace").splitlines()
        errors = [line.partition(_ERROR)[2].strip() for line in lines if _ERROR in line]
        quoted = [line.strip() for line in lines if line.startswith("    ")]  # of the task's output
        text = ": ".join([*(errors[:1] or [f"exit code {code}"]), *quoted[-1:]])
        return f"{text}; its output is in {display_path(folder / OUTPUT)}"

    def _stop_all(self, number: int) -> None:
        """Send a signal to all trials that run; wait for them if it cannot be ignored."""
        for run in self._runs.values():
            if run.process and run.process.poll() is None:
                run.process.send_signal(number)
                if number == signal.SIGKILL:
                    run.process.wait()

    def _trial_folder(self, run: _Run) -> Path:
        return self._folder / f"trial-{run.trial.id}"

    def _save(self, run: _Run) -> None:
        content = asdict(run.trial) | {"point": dict(run.point)}
        path = self._trial_folder(run) / TRIAL
        files.atomic_write(path, json.dumps(content, indent=2), is_private=True)

    def _open(self) -> None:
        """Read the trials of the folder if it is this search's, or start a new one."""
        identity, path = _identity(self._plan), self._folder / "search.json"
        if not path.exists():
            files.atomic_write(path, json.dumps(identity, indent=2), is_private=True)
        try:
            earlier = files.read_object(path)
        except ValueError:
            raise _not_of_a_search(path) from None
        different = sorted(key for key in identity if earlier.get(key) != identity[key])
        if different:
            raise DistlaunchError(
                f"{display_path(self._folder)} has a search with other {', '.join(different)}; "
                "--new starts a new one and keeps the old folder"
            )
        runs = [_read_run(path, self._tuning) for path in self._folder.glob(f"trial-*/{TRIAL}")]
        for run in sorted(runs, key=lambda run: run.trial.id):
            if not run.trial.has_ended:
                run.trial = replace(run.trial, state=STOPPED)
            self._runs[run.trial.id] = run


def move_aside(base: Path, folder: Path) -> Path | None:
    """Rename the folder of a search below another and return its new path; None if there is none.

    DistlaunchError is raised if the search runs, or its folder is behind a symlink.
    """
    with _errors_of(folder):
        files.refuse_symlinks(folder, below=base)
        if not folder.exists():
            return None
        number = 1
        while (path := folder.with_name(f"{folder.name}.{number}")).exists():
            number += 1
        with files.lock(folder / _LOCK, wait=False):
            folder.rename(path)
        return path


def _identity(plan: SearchPlan) -> dict[str, Any]:
    """Return what the trials of a search have in common, as JSON has it."""
    tuning = plan.tuning
    parameters = {name: asdict(each) for name, each in tuning.parameters.items()}
    content = {
        "metric": [tuning.metric, tuning.goal],
        "parameters": parameters,
        "algorithm": tuning.algorithm,
        "program": [*plan.job.main, *plan.job.args],
        "options": redact_words(plan.options),
        "arguments": [*plan.words],
    }
    as_data: dict[str, Any] = json.loads(json.dumps(content))
    return as_data


def _result_of(trial: Trial) -> float | None:
    if trial.state == INFEASIBLE:
        return math.nan
    return trial.metric if trial.state == SUCCEEDED else None


def _no_result(tuning: Tuning, value: float | None, names: set[str]) -> str:
    metric = tuning.metric
    if value is not None:
        return f"the metric {metric!r} is {value:g}"
    reported = f"it reported {', '.join(sorted(names))}" if names else "it reported no metrics"
    return f"no metric {metric!r}: {reported}"


def _read_run(path: Path, tuning: Tuning) -> _Run:
    """Return the run of a ``trial.json`` of a search."""
    try:
        content = files.read_object(path)
        point = content.pop("point")
        trial = Trial(**content)
        is_valid = (
            dict(trial.parameters) == values_at(tuning, point)
            and point.keys() == trial.parameters.keys()
            and isinstance(trial.id, int)
            and f"trial-{trial.id}" == path.parent.name
            and isinstance(trial.metric, (int, float, type(None)))
            and isinstance(trial.seconds, (int, float, type(None)))
            and isinstance(trial.state, str)
        )
    except (ArithmeticError, LookupError, TypeError, ValueError):
        is_valid = False
    if not is_valid:
        raise _not_of_a_search(path)
    return _Run(trial, point)


def _not_of_a_search(path: Path) -> DistlaunchError:
    return DistlaunchError(
        f"{display_path(path)}: not JSON of a search; remove it, or start over with --new"
    )


@contextmanager
def _pinned(cores: Sequence[int]) -> Iterator[None]:
    """Start processes on some cores, which they inherit; on any if none are given."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _errors_of(folder: Path) -> Iterator[None]:
    """Raise DistlaunchError if the folder of a search is locked, or cannot be read or written."""
    try:
        yield
    except BlockingIOError:
        raise DistlaunchError(
            f"{display_path(folder)}: another 'distlaunch tune' runs this search; wait for it, or "
            "give this one a NAME"
        ) from None
    except OSError as problem:
        path = problem.filename or display_path(folder)
        raise DistlaunchError(f"{path}: {os_reason(problem)}") from None


def _read_metric(lines: str, name: str) -> tuple[float | None, int | None, set[str]]:
    """Return the last value of a metric and its step, and the names of all metrics.

    Both are None if it was not reported.
    """
    value, step, names = None, None, set[str]()
    for at, metrics in read_metrics(lines):
        names |= metrics.keys()
        if metrics.get(name) is not None:
            value, step = metrics[name], at
    return value, step, names
