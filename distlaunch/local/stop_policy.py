"""When a group of tasks is done, has failed, is stopped or restarted: decisions, no processes."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.events import Notice
from distlaunch.failure_reasons import IDLE
from distlaunch.job.model import IDLE_CODE
from distlaunch.local.task_process import NOT_FOUND, NOT_RUNNABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distlaunch.job.tasks import Task

KILL_TIMEOUT = 5.0  # seconds between SIGTERM and SIGKILL once a task has failed
OUTLIVE_TIMEOUT = 5.0  # likewise, of tasks that outlive the primary
STOP_TIMEOUT = 30.0  # seconds to save and leave after Ctrl-C, or to end after the primary has

_USAGE = 2  # the exit code of a program that was called wrongly
_PATIENT = 10.0  # seconds until missing tasks are named at the start
_PATIENT_AT_END = 3.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a task ended: with an exit code, by a signal, or (with a reason) before it began."""

    code: int = 0
    signal: int | None = None
    reason: str | None = None

    @property
    def exit_code(self) -> int:
        """The code a shell would give: 128 + n for signal n."""
        return self.code if self.signal is None else 128 + self.signal

    def __str__(self) -> str:
        if self.reason is not None:
            return f"could not start: {self.reason}"
        if self.signal is not None:
            known = {number.value: f" ({number.name})" for number in signal.Signals}
            return f"was killed by signal {self.signal}{known.get(self.signal, '')}"
        return f"failed with exit code {self.code}"


@dataclass(frozen=True, slots=True)
class Done:
    """The primary task is done, and so are the others."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A task failed, as the first of its group."""

    task: Task
    ended: Ended
    seconds: float | None  # how long it had run, None where it never did
    likely: tuple[str, ...] = ()  # causes, one sentence each


@dataclass(frozen=True, slots=True)
class Stopped:
    """The group was stopped by a signal, or (None) because its output cannot be written."""

    signal: int | None


Verdict = Done | Failure | Stopped


class Policy:
    """Follows what happens to a group of tasks, and decides.

    What first decides the outcome stays the verdict, whatever follows from it. Times are in
    seconds of any steady clock. The first task is the primary.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        send: Callable[[Task, int], None],
        report: Callable[[Notice], None],
        *,
        can_restart: bool = False,
        is_debugged: bool = False,  # no task is ended because others are done
    ) -> None:
        self._tasks = tuple(tasks)
        self._primary = self._tasks[0]
        self._can_restart = can_restart
        self._end_timeout = math.inf if is_debugged else STOP_TIMEOUT
        has_servers = any(task.type == "ps" for task in self._tasks)
        # With parameter servers the chief trains, and the workers serve it until it is done.
        self._trainers = {
            task
            for task in self._tasks
            if task == self._primary or (task.is_training and not has_servers)
        }
        self._workers = {task for task in self._tasks if has_servers and task.type == "worker"}
        self._send = send
        self._report = report
        self._started: dict[Task, float] = {}
        self._left = set(self._tasks)  # those that have not ended
        self._frozen: set[Task] = set()
        self._ready: set[Task] = set()
        self.first_ready: float | None = None
        self._primary_done: float | None = None
        self._reported_at_start = self._reported_at_end = False
        self._kill_at = 0.0
        self._is_hurried = False
        self.verdict: Verdict | None = None
        self.is_interrupted = False

    def is_running(self, task: Task) -> bool:
        """Whether a task has started and not ended."""
        return task in self._started and task in self._left

    def started(self, task: Task, now: float) -> None:
        """Record that a task runs."""
        self._started[task] = now
        if self.verdict is not None:
            self._send(task, signal.SIGTERM)

    def ready(self, task: Task, now: float) -> None:
        """Record that a task's program is about to train, which takes all of them."""
        self._ready.add(task)
        if self.first_ready is None:
            self.first_ready = now

    def stopped(self, task: Task) -> None:
        """Record that a task is frozen."""
        self._frozen.add(task)

    def continued(self, task: Task) -> None:
        """Record that a task is frozen no more."""
        self._frozen.discard(task)

    def exited(self, task: Task, ended: Ended, now: float) -> None:
        """Record that a task has ended, or could not start."""
        self._left.discard(task)
        is_over = self._primary_done is not None and task not in self._trainers
        if self.verdict is not None or is_over:
            return
        if ended.signal is not None and self._is_dispensable(task):
            self._report(Notice(f"{task} {ended}; the job continues without it", "warning"))
            return
        if ended.exit_code:
            began = self._started.get(task)
            seconds = None if began is None else now - began
            failure = Failure(task, ended, seconds, tuple(self._suspects()))
            self._decide(failure, now + KILL_TIMEOUT)
            return
        if task == self._primary:
            self._primary_done = now
            self._terminate(task for task in self._tasks if task not in self._trainers)
        if self._primary_done is not None and not self._training_left():
            self._decide(Done(), self._primary_done + OUTLIVE_TIMEOUT)

    def stop(self, number: int, now: float) -> None:
        """Stop the group cleanly on a signal, or at once if it is ending already."""
        self.is_interrupted = True
        if self.verdict is None:
            self._decide(Stopped(number), now + STOP_TIMEOUT)
        elif self.verdict == Stopped(None):
            self.verdict = Stopped(number)
        else:
            self._kill_at = now
            self._is_hurried = True

    def stop_output_lost(self, now: float) -> None:
        """Stop the group cleanly because its output cannot be written."""
        if self.verdict is None:
            self._decide(Stopped(None), now + STOP_TIMEOUT)

    def tick(self, now: float) -> None:
        """Act on the time."""
        if self.verdict is not None:
            return
        if self._primary_done is None:
            self._report_missing_at_start(now)
            return
        names = _join(self._training_left())
        if now >= self._primary_done + self._end_timeout:
            self._report(
                Notice(f"{names}: ended, as {STOP_TIMEOUT:.0f} s were not enough", "warning")
            )
            self._decide(Done(), now + OUTLIVE_TIMEOUT)
        elif now >= self._primary_done + _PATIENT_AT_END and not self._reported_at_end:
            self._reported_at_end = True
            self._report(Notice(f"{self._primary} is done; waiting for {names}"))

    def is_over(self, now: float) -> bool:
        """Whether nothing is left to do but to kill the remaining tasks."""
        if self.verdict is None:
            return False
        # What is frozen does not end by itself, nor does what never began.
        return now >= self._kill_at or not (self._left & self._started.keys()) - self._frozen

    def report_killed(self) -> None:
        """Report the tasks that a stop has given time to end and that still run."""
        if self._is_hurried or not isinstance(self.verdict, Stopped):
            return
        for task in self._tasks:
            if self.is_running(task) and task not in self._frozen:
                text = f"{task}: killed, as {STOP_TIMEOUT:.0f} s were not enough"
                self._report(Notice(text, "warning"))

    def reason_against_restart(self) -> str:
        """Return why a group that failed is not restarted; empty if it may be."""
        code = self.verdict.ended.exit_code if isinstance(self.verdict, Failure) else 0
        if code in (NOT_RUNNABLE, NOT_FOUND):
            return "the program could not be started"
        if code == _USAGE:
            return f"exit code {_USAGE} means that the program was called wrongly"
        if code == IDLE_CODE:
            return IDLE.reason
        if self._primary_done is not None:
            return "the primary task was done, and a finished job is not trained again"
        return ""

    def _decide(self, verdict: Verdict, kill_at: float) -> None:
        self.verdict = verdict
        self._kill_at = kill_at
        self._terminate(self._tasks)

    def _terminate(self, tasks: Iterable[Task]) -> None:
        """Send SIGTERM to tasks, also to what is left of those that have ended."""
        for task in tasks:
            if task in self._started:
                self._send(task, signal.SIGTERM)

    def _suspects(self) -> Iterable[str]:
        for task in self._tasks:
            if task in self._frozen:
                yield f"{task} is frozen (SIGSTOP)"
        late = [task for task in self._training_left() if task not in self._ready]
        if self._ready and late:
            yield f"never ready: {_join(late)}"

    def _report_missing_at_start(self, now: float) -> None:
        if self.first_ready is None or self._reported_at_start:
            return
        late = [task for task in self._training_left() if task not in self._ready]
        if late and now >= self.first_ready + _PATIENT:
            self._reported_at_start = True
            self._report(Notice(f"still waiting for {_join(late)}"))

    def _is_dispensable(self, task: Task) -> bool:
        """Whether the job continues without a task that is gone: not without its last worker."""
        if task.type == "evaluator":
            return not self._can_restart
        return task in self._workers and bool(self._workers & self._left)

    def _training_left(self) -> list[Task]:
        return [task for task in self._tasks if task in self._trainers and task in self._left]


def _join(tasks: Iterable[Task]) -> str:
    return ", ".join(map(str, tasks))
