"""One attempt at a job: a group of tasks from its start until none of it is left."""

from __future__ import annotations

import selectors
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from distlaunch.errors import DistlaunchError, OutputError
from distlaunch.events import Notice, TaskChanged, TaskLines, Trained, Waiting
from distlaunch.local.host_process import HostProcess
from distlaunch.local.output import TaskOutput
from distlaunch.local.ports import is_any_listening
from distlaunch.local.stop_policy import Ended, Policy, Stopped
from distlaunch.task_files import EventFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.events import Event
    from distlaunch.job.tasks import Task
    from distlaunch.local.debugger import Debugger
    from distlaunch.local.host import Message
    from distlaunch.local.ports import HeldPorts
    from distlaunch.local.run_plan import Fault
    from distlaunch.local.stop_policy import Verdict
    from distlaunch.local.task_process import TaskPlan
    from distlaunch.stop_signals import StopSignals
    from distlaunch.task_files import AttemptFolder
    from distlaunch.ui.progress_view import ProgressView

_TICK = 0.1  # seconds between two looks at the clock and at the event files


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
        folder: AttemptFolder,
        ports: HeldPorts,
        faults: list[Fault],
        view: ProgressView,
        signals: StopSignals,
        can_restart: bool,
        debugger: Debugger | None = None,
    ) -> None:
        self._tasks = {str(task): task for task in plans}
        self._has_modules = any(plan.is_module for plan in plans.values())
        self._ports = ports
        self._faults = faults
        self.killed: set[Task] = set()  # by a fault
        self._view = view
        self._signals = signals
        self._started_at: float | None = None
        self._next_tick = 0.0
        self.has_cluster = False  # whether a task has ever listened at its port
        self.output_problem: BrokenPipeError | OutputError | None = None
        self._events = {task: EventFile(folder.events(task)) for task in plans}
        self._group = HostProcess(list(plans.values()), env=env, host_log=folder.host_log)
        pipes = self._group.outputs
        self.outputs = {
            task: TaskOutput(name, pipes[name], folder.log(task), self._report)
            for name, task in self._tasks.items()
        }
        self._debugger = debugger  # until its task waits
        limits = {"can_restart": can_restart, "is_debugged": debugger is not None}
        self.policy = Policy(plans, self._send, self._report, **limits)

    def run(self) -> Verdict:
        """Run the group to its end and return how it went."""
        self._signals.at_second = self._group.request_kill
        if self._has_modules:
            self._report(Waiting("starting TensorFlow"))
        control = self._group.control
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ, self._receive_signals)
            selector.register(control, selectors.EVENT_READ, self._receive_messages)
            for output in self.outputs.values():
                read = partial(_read, output, selector)
                selector.register(output, selectors.EVENT_READ, read)
            try:
                verdict = None
                while verdict is None or not self.policy.is_over(time.monotonic()):
                    for key, _ in selector.select(_TICK):
                        key.data()
                    self._tick(time.monotonic())
                    verdict = self.policy.verdict
                self.policy.report_killed()
            finally:
                self._end()
        return verdict

    def _receive_signals(self) -> None:
        for number in self._signals.received():
            is_first = self.policy.verdict in (None, Stopped(None))
            self.policy.stop(number, time.monotonic())
            if is_first:
                name = signal.Signals(number).name
                self._notify(f"{name}: stopping the tasks; press Ctrl-C again to kill them")

    def _receive_messages(self) -> None:
        for message in self._group.control.receive():
            self._handle(message)
        if not self._group.control.is_open:
            raise DistlaunchError(
                f"the process that holds the tasks ended unexpectedly; see {self._group.host_log}"
            )

    def _handle(self, message: Message) -> None:
        saw, now = message["saw"], time.monotonic()
        if saw == "prepared":
            self._report(Waiting(""))
            self._ports.release()
            self._group.start()
            self._started_at = now
        elif saw == "broken":
            raise DistlaunchError(f"{message['reason']} (details: {self._group.host_log})")
        elif saw != "ended":
            self._handle_change(self._tasks[message["task"]], message, now)
            self._report(TaskChanged(message["task"], saw))

    def _handle_change(self, task: Task, change: Message, now: float) -> None:
        if change["saw"] == "started":
            self.policy.started(task, now)
        elif change["saw"] == "stopped":
            self.policy.stopped(task)
            self._notify(f"{task} is frozen (SIGSTOP)", is_warning=True)
        elif change["saw"] == "continued":
            self.policy.continued(task)
            self._notify(f"{task} continues (SIGCONT)")
        else:
            ended = Ended(change.get("code", 0), change.get("signal"), change.get("reason"))
            self.policy.exited(task, ended, now)

    def _tick(self, now: float) -> None:
        if now < self._next_tick:
            return
        self._next_tick = now + _TICK
        if self._started_at is not None and not self.has_cluster:
            self.has_cluster = is_any_listening(self._ports.numbers)
        if self._debugger and self._started_at and is_any_listening([self._debugger.port]):
            self._notify(str(self._debugger))
            self._debugger = None
        for task, events in self._events.items():
            for event in events.poll():
                self._handle_event(task, event, now)
        if self._started_at is not None:
            self._inject(seconds=now - self._started_at)
        self.policy.tick(now)
        self._view.spin()

    def _handle_event(self, task: Task, event: Mapping[str, Any], now: float) -> None:
        if event["event"] == "ready":
            self.policy.ready(task, now)
        step = event.get("step")
        if isinstance(step, int):
            self._inject(step=step)
        self._record(task, event)

    def _record(self, task: Task, event: Mapping[str, Any]) -> None:
        """Write a traceback into the task's log, as it has printed the reason; report the rest."""
        if event["event"] == "error":
            self.outputs[task].add_to_log(f"{event.get('traceback')}\n")
        else:
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
            self._notify(f"{fault}: sending {number.name} to {fault.task} {at}", is_warning=True)
            if number == signal.SIGKILL:
                self.killed.add(fault.task)
            self._send(fault.task, number)

    def _send(self, task: Task, number: int) -> None:
        self._group.signal(str(task), number)

    def _notify(self, text: str, *, is_warning: bool = False) -> None:
        self._report(Notice(text, "warning" if is_warning else "info"))

    def _report(self, event: Event) -> None:
        """Show an event, and stop a job whose output cannot be shown.

        Of what tasks write nothing more is shown then.
        """
        if self.output_problem is not None and isinstance(event, TaskLines):
            return
        try:
            self._view.handle(event)
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
                for event in events.poll():
                    self._record(task, event)
            for output in self.outputs.values():
                output.close()


def _read(output: TaskOutput, selector: selectors.BaseSelector) -> None:
    if not output.read() and not output.is_open:
        selector.unregister(output)
