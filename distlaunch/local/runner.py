"""A job on this machine, attempt after attempt."""

from __future__ import annotations

import errno
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError, OutputError, os_reason
from distlaunch.local.attempt import Attempt, event_path
from distlaunch.local.host_resources import has_cpu_tensorflow, share_out, this_machine
from distlaunch.local.policy import Done, Failure, Stopped
from distlaunch.local.ports import HOST, HeldPorts, is_taken
from distlaunch.local.run_spec import Container
from distlaunch.local.stop_signals import StopSignals
from distlaunch.local.task_process import NOT_FOUND, NOT_RUNNABLE
from distlaunch.local.task_spec import (
    PEER_TIMEOUT,
    common_environment,
    host_environment,
    plan_task,
    task_environment,
)
from distlaunch.ui.events import Notice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from distlaunch.job.model import Task
    from distlaunch.local.policy import Ended, Verdict
    from distlaunch.local.run_spec import RunSpec
    from distlaunch.local.task_process import TaskPlan
    from distlaunch.ui.progress_view import ProgressView

_NEW_PORTS = 3  # times that a group gets new ports, because a stranger took one
_PORT_TROUBLE = 2.0 * PEER_TIMEOUT  # seconds; what fails later does not fail for want of a port
_USAGE = 2  # the exit code of a program that was called wrongly: no restart fixes that


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended: its exit code, and the event files of each attempt's training tasks.

    The code is 0 when the primary task is done, otherwise the first failing task's own; 128 + n for
    signal n, 130 after Ctrl-C, 143 after SIGTERM.
    """

    code: int
    event_files: tuple[Mapping[str, Path], ...] = ()


class Runner:
    """Runs a job, restarting the group of its tasks as often as its specification allows."""

    def __init__(self, spec: RunSpec, view: ProgressView) -> None:
        self._spec = spec
        self._view = view
        self._tasks = spec.cluster.tasks()
        self._faults = list(spec.faults)
        self._restarts = 0
        self._event_files: list[Mapping[str, Path]] = []

    def run(self) -> Outcome:
        """Run it and return how it ended.

        Raises
        ------
        DistlaunchError
            If it cannot be run at all.
        BrokenPipeError
            If stdout is closed; the tasks have been stopped.
        OutputError
            If the output cannot be written; the tasks have been stopped, or have lost some of it.
        """
        self._share_machine()
        number = _next_attempt(self._spec.logs_dir)
        with StopSignals() as signals:
            while True:
                code = self._attempt(number + self._restarts, signals)
                if code is not None:
                    break
                self._restarts += 1
        if self._faults:
            never = ", ".join(map(str, self._faults))
            self._view.handle(Notice(f"fault not triggered: {never}", "warning"))
        return Outcome(code, tuple(self._event_files))

    def _share_machine(self) -> None:
        self._env = common_environment(self._spec)
        machine = this_machine(self._env)
        if machine.gpus and self._runs_without_cuda():
            text = (
                f"{machine.describe()}: GPUs are not used, as tensorflow-cpu is installed; install "
                "distlaunch[local-gpu] in place of distlaunch[local]"
            )
            self._view.handle(Notice(text, "warning"))
            machine = replace(machine, gpus=())
        self._shares = share_out(machine, self._tasks)
        shares = [share for task, share in self._shares.items() if task.is_training]
        per_task, total = len(shares[0].gpus), len(machine.gpus)
        unused = total - per_task * len(shares)
        if unused:
            text = (
                f"{machine.describe()} for {len(shares)} training tasks: "
                f"GPUs per task: {per_task}, unused: {unused}"
            )
            self._view.handle(Notice(text, "warning"))

    def _runs_without_cuda(self) -> bool:
        """Whether tasks get no GPUs, because none were chosen and TensorFlow here has no CUDA."""
        is_chosen = "CUDA_VISIBLE_DEVICES" in self._env
        is_contained = isinstance(self._spec.program, Container)
        return not is_chosen and not is_contained and has_cpu_tensorflow()

    def _attempt(self, number: int, signals: StopSignals) -> int | None:
        """Run the group once and return the exit code, or None where it is to be restarted."""
        folder = self._spec.logs_dir / f"attempt-{number}"
        _create(folder)
        self._event_files.append(
            {str(task): event_path(folder, task) for task in self._tasks if task.is_training}
        )
        for tries_left in reversed(range(_NEW_PORTS + 1)):
            with ExitStack() as until_it_ends:
                with _enough_files():
                    ports = until_it_ends.enter_context(HeldPorts(len(self._tasks)))
                    attempt = Attempt(
                        self._plans(folder, ports.numbers),
                        env=host_environment(self._spec, self._env),
                        folder=folder,
                        ports=ports,
                        faults=self._faults if self._restarts == 0 else [],
                        view=self._view,
                        signals=signals,
                    )
                verdict = attempt.run()
            self._raise_if_output_lost(verdict, attempt)
            taken = self._taken(verdict, attempt, ports.numbers)
            if taken is None:
                return self._conclude(verdict, attempt)
            problem = f"another program has taken port {taken} on {HOST}"
            if tries_left:
                self._view.handle(Notice(f"{problem}; starting again on new ports", "warning"))
        raise DistlaunchError(f"{problem}, and ports before it; end what takes them and try again")

    def _plans(self, folder: Path, ports: tuple[int, ...]) -> dict[Task, TaskPlan]:
        addresses = {task: f"{HOST}:{port}" for task, port in zip(self._tasks, ports, strict=True)}
        return {task: self._plan(task, folder, addresses) for task in self._tasks}

    def _plan(self, task: Task, folder: Path, addresses: Mapping[Task, str]) -> TaskPlan:
        share = self._shares[task]
        env = task_environment(
            self._env,
            self._spec,
            task,
            addresses=addresses,
            share=share,
            event_file=event_path(folder, task),
            restarts=self._restarts,
        )
        return plan_task(self._spec, task, share, env, folder)

    def _conclude(self, verdict: Verdict, attempt: Attempt) -> int | None:
        if isinstance(verdict, Done):
            return 0
        if not isinstance(verdict, Failure):
            return 128 + (verdict.signal or 0)
        self._show_failure(verdict, attempt)
        if self._restarts == self._spec.restarts or attempt.policy.is_interrupted:
            return verdict.ended.exit_code
        reason = _reason_against_restart(verdict.ended, attempt)
        if reason:
            self._view.handle(Notice(f"not restarted: {reason}"))
            return verdict.ended.exit_code
        count = f"{self._restarts + 1} of {self._spec.restarts}"
        self._view.handle(Notice(f"restarting all tasks ({count})"))
        return None

    def _raise_if_output_lost(self, verdict: Verdict, attempt: Attempt) -> None:
        """Raise a lost output if it ended the job; show it otherwise."""
        problem = attempt.output_problem
        if problem and verdict == Stopped(None):
            raise problem
        if isinstance(problem, OutputError):
            if verdict == Done():
                raise problem
            self._view.handle(Notice(str(problem), "error"))

    def _show_failure(self, failure: Failure, attempt: Attempt) -> None:
        after = "" if failure.seconds is None else f" after {failure.seconds:.1f} s"
        self._view.handle(Notice(f"{failure.task} {failure.ended}{after}", "error"))
        for sentence in failure.likely:
            self._view.handle(Notice(f"likely cause: {sentence}", "warning"))
        output = attempt.outputs[failure.task]
        last = output.last_lines().rstrip("\n")
        others = (attempt.outputs[task] for task in self._tasks if task != failure.task)
        # If no other task wrote, they are what was printed just before this.
        if last and (not self._view.is_one_stream or any(other.last_lines() for other in others)):
            self._view.handle(Notice(f"the last lines of {failure.task}:\n{last}", "error"))
        self._view.handle(Notice(f"full log: {output.log}", "error"))

    def _taken(self, verdict: Verdict, attempt: Attempt, ports: tuple[int, ...]) -> int | None:
        """Return the port that a stranger took while the group started, if that made it fail."""
        if not isinstance(verdict, Failure) or attempt.policy.is_interrupted:
            return None
        if attempt.policy.anyone_ready or not attempt.output_is_read:
            return None
        if verdict.ended.reason is not None or (verdict.seconds or 0) > _PORT_TROUBLE:
            return None
        return next(filter(is_taken, ports), None)


def _reason_against_restart(ended: Ended, attempt: Attempt) -> str:
    """Return why a group that failed is not restarted; empty if it may be."""
    if ended.reason is not None or ended.exit_code in (NOT_RUNNABLE, NOT_FOUND):
        return "the program could not be started"
    if ended.exit_code == _USAGE:
        return f"exit code {_USAGE} means that the program was called wrongly"
    if attempt.policy.is_primary_done:
        return "the primary task was done, and a finished job is not trained again"
    if not attempt.output_is_read:
        return "the output cannot be written any more"
    return ""


def _next_attempt(logs_dir: Path) -> int:
    """Return a number that no attempt before has, for a job folder may be used again."""
    numbers = [path.name.removeprefix("attempt-") for path in logs_dir.glob("attempt-*")]
    return 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)


@contextmanager
def _enough_files() -> Iterator[None]:
    """Raise with the remedy if so many tasks take more open files than are allowed."""
    try:
        yield
    except OSError as problem:
        if problem.errno != errno.EMFILE:
            raise
        raise DistlaunchError(
            "too many open files for so many tasks; allow more with 'ulimit -n' or start fewer"
        ) from None


def _create(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise DistlaunchError(
            f"{folder}: cannot be created ({os_reason(problem)}); see --job-dir"
        ) from None
