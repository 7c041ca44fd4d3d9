"""One attempt at a job: a group of tasks from its start until none of it is left."""

from __future__ import annotations

import contextlib
import selectors
import signal
import time
from typing import TYPE_CHECKING, Any

from distlaunch.errors import DistlaunchError, OutputError
from distlaunch.local.host_process import HostProcess
from distlaunch.local.output import TaskOutput
from distlaunch.local.policy import Ended, Policy, Stopped
from distlaunch.local.task_events import EventFile
from distlaunch.ui.events import Notice, TaskChanged, TaskLines, Trained, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from distlaunch.job.model import Task
    from distlaunch.local.faults import Fault
    from distlaunch.local.host import Message
    from distlaunch.local.policy import Verdict
    from distlaunch.local.ports import HeldPorts
    from distlaunch.local.stop_signals import StopSignals
    from distlaunch.local.task_process import TaskPlan
    from distlaunch.ui.events import Event
    from distlaunch.ui.progress_view import ProgressView

_TICK = 0.1  # seconds between two looks at the clock and at the event files


def file_stem(task: Task) -> str:
    """Return what a task's files are called, as ``worker-0``."""
    return str(task).replace(":", "-")


def event_path(folder: Path, task: Task) -> Path:
    """Return the file for a task's events in the folder of an attempt."""
    return folder / f"{file_stem(task)}.events.jsonl"


class Attempt:
    """Runs a group of tasks once; the first is the primary.

    The ports are released just before the tasks start. A fault that was injected is removed from
    the list.
    """

    def __init__(
        self,
        plans: Mapping[Task, TaskPlan],
        *,
        env: Mapping[str, str],
        folder: Path,
        ports: HeldPorts,
        faults: list[Fault],
        view: ProgressView,
        signals: StopSignals,
    ) -> None:
        self._tasks = {str(task): task for task in plans}
        self._has_modules = any(plan.is_module for plan in plans.values())
        self._ports = ports
        self._faults = faults
        self._view = view
        self._signals = signals
        self._started_at: float | None = None
        self._next_tick = 0.0
        self.output_problem: BrokenPipeError | OutputError | None = None
        self._events = {task: EventFile(event_path(folder, task)) for task in plans}
        for events in self._events.values():
            events.path.unlink(missing_ok=True)
        self._group = HostProcess(list(plans.values()), env=env, host_log=folder / "host.log")
        self.outputs = {
            task: TaskOutput(
                str(task),
                self._group.outputs[str(task)],
                folder / f"{file_stem(task)}.log",
                self._report,
            )
            for task in plans
        }
        self.policy = Policy(plans, self._send, self._report)

    @property
    def output_is_read(self) -> bool:
        """Whether the output of the tasks can still be written."""
        return self.output_problem is None

    def run(self) -> Verdict:
        """Run the group to its end and return how it went."""
        self._signals.at_second = self._group.request_kill
        if self._has_modules:
            self._report(Waiting("starting TensorFlow"))
        with selectors.DefaultSelector() as everything, selectors.DefaultSelector() as urgent:
            for selector in (everything, urgent):
                selector.register(self._signals, selectors.EVENT_READ)
                selector.register(self._group.control, selectors.EVENT_READ)
            for output in self.outputs.values():
                everything.register(output, selectors.EVENT_READ)
            with contextlib.suppress(PermissionError):  # a file is always writable
                urgent.register(self._view, selectors.EVENT_WRITE)
            try:
                verdict = None
                while verdict is None or not self.policy.is_over(time.monotonic()):
                    if self._view.is_full:
                        self._turn(urgent, _TICK)
                        self._show(self._view.pump)
                    else:
                        self._turn(everything, _TICK)
                    verdict = self.policy.verdict
                self.policy.report_killed()
            finally:
                self._end()
        return verdict

    def _turn(self, selector: selectors.BaseSelector, timeout: float) -> None:
        for key, _ in selector.select(timeout):
            source: Any = key.fileobj
            if source is self._signals:
                for number in self._signals.received():
                    self._stop(number)
            elif source is self._group.control:
                for message in source.receive():
                    self._handle(message)
                if not source.is_open:
                    raise DistlaunchError(
                        "the process that holds the tasks ended unexpectedly; "
                        f"see {self._group.host_log}"
                    )
            elif source is not self._view and not source.read() and not source.is_open:
                selector.unregister(source)
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + _TICK
            self._tick(now)
            self._show(self._view.pump)

    def _tick(self, now: float) -> None:
        for task, events in self._events.items():
            for event in events.poll():
                self._handle_event(task, event, now)
        if self._started_at is not None:
            self._inject(seconds=now - self._started_at)
        self.policy.tick(now)

    def _handle(self, message: Message) -> None:
        saw, now = message["saw"], time.monotonic()
        if saw == "prepared":
            self._report(Waiting(""))
            self._ports.release()
            self._group.start()
            self._started_at = now
            return
        if saw == "broken":
            raise DistlaunchError(f"{message['reason']} (details: {self._group.host_log})")
        if saw == "ended":
            return
        task = self._tasks[message["task"]]
        if saw == "started":
            self.policy.started(task, now)
        elif saw == "stopped":
            self.policy.stopped(task)
            self._report(Notice(f"{task} is frozen (SIGSTOP)", "warning"))
        elif saw == "continued":
            self.policy.continued(task)
            self._report(Notice(f"{task} continues (SIGCONT)"))
        else:
            details = {key: message.get(key) for key in ("signal", "reason")}
            self.policy.exited(task, Ended(message.get("code", 0), **details), now)
        self._report(TaskChanged(str(task), saw))

    def _handle_event(self, task: Task, event: Mapping[str, Any], now: float) -> None:
        if event["event"] == "ready":
            self.policy.ready(task, now)
        step = event.get("step")
        if isinstance(step, int):
            self._inject(step=step)
        self._report(Trained(str(task), event))

    def _inject(self, step: int = -1, seconds: float = -1.0) -> None:
        """Let the faults happen whose time has come."""
        for fault in list(self._faults):
            due = step >= fault.step if fault.step is not None else seconds >= (fault.seconds or 0)
            if not due or not self.policy.is_running(fault.task):
                continue
            self._faults.remove(fault)
            number = signal.SIGKILL if fault.action == "kill" else signal.SIGSTOP
            at = f"at step {step}" if fault.step is not None else f"after {seconds:.1f} s"
            self._report(Notice(f"{fault}: sending {number.name} to {fault.task} {at}", "warning"))
            self._send(fault.task, number)

    def _send(self, task: Task, number: int) -> None:
        self._group.signal(str(task), number)

    def _stop(self, number: int) -> None:
        is_first = self.policy.verdict in (None, Stopped(None))
        self.policy.stop(number, time.monotonic())
        if is_first:
            name = signal.Signals(number).name
            self._report(Notice(f"{name}: stopping the tasks; press Ctrl-C again to kill them"))

    def _report(self, event: Event) -> None:
        """Show something; of what tasks write nothing more once it could not be shown."""
        if self.output_is_read or not isinstance(event, TaskLines):
            self._show(lambda: self._view.handle(event))

    def _show(self, show: Callable[[], None]) -> None:
        """Show something; a job whose output cannot be shown is stopped."""
        try:
            show()
        except (BrokenPipeError, OutputError) as problem:
            self.output_problem = problem
            self.policy.stop_output_lost(time.monotonic())

    def _end(self) -> None:
        """Kill what is left, then take in all that was written."""
        self._signals.at_second = None
        try:
            self._group.end()
        finally:
            for output in self.outputs.values():
                output.finish()
            for task, events in self._events.items():
                for event in events.rest():
                    self._report(Trained(str(task), event))
