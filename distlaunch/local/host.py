"""The process that holds the tasks of one attempt, between the launcher and them.

It imports what the tasks have in common once, forks one child a task and reports to the launcher
what becomes of them. When the launcher is gone, for whatever reason, it kills the tasks and all of
their descendants. It has one thread and needs the standard library alone, for the tasks inherit it;
they must not inherit the launcher's terminals, selectors and signal handlers.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.local import container, processes, task_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Message = dict[str, Any]

_PATIENCE = 10.0  # seconds to kill everything in
_CHUNK = 1 << 16
_TRAINER = "distlaunch_trainer"  # the package
WITHOUT_THREADS = {
    # OpenBLAS starts its threads when NumPy is imported.
    "OPENBLAS_NUM_THREADS": "1",
    # Keras imports pandas where it is installed, and that pyarrow with its allocator.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


class Channel:
    """One end of the stream between the launcher and the host: JSON objects, one a line."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.is_open = True
        self._partial = b""

    def fileno(self) -> int:
        return self.stream.fileno()

    def send(self, message: Message) -> None:
        """Send a message; one for a closed peer is lost; `receive` then reports the end."""
        with contextlib.suppress(OSError):
            self.stream.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Message]:
        """Wait for more and return what is complete of it; `is_open` turns false at the end."""
        try:
            data = self.stream.recv(_CHUNK)
        except ConnectionError:
            data = b""
        self.is_open = bool(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Host:
    """Starts tasks, watches them and ends them, by the launcher's commands."""

    def __init__(self, control: Channel) -> None:
        self._control = control
        self._plans: list[task_process.TaskPlan] = []
        self._leaders: dict[str, int] = {}
        self._running: dict[str, int] = {}
        self._forks_modules = False
        self._signalled, signalling = os.pipe()
        for end in (self._signalled, signalling):
            os.set_blocking(end, False)
        self._private = {control.fileno(), self._signalled, signalling}
        signal.set_wakeup_fd(signalling, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            # Not ignored: a program that is executed would inherit that.
            signal.signal(number, lambda *_: None)

    def serve(self) -> Callable[[], None] | None:
        """Carry out the launcher's commands until 'end' or until it is gone."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._signalled, select.POLLIN)
        while self._control.is_open:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if self._signalled in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._signalled, 4096)
                self._poll_tasks()
            for command in self._control.receive() if self._control.fileno() in ready else ():
                program = self._dispatch(command)
                if program:
                    return program
        self._end()
        return None

    def _dispatch(self, command: Message) -> Callable[[], None] | None:
        if command["do"] == "go":
            return self._start_tasks()
        if command["do"] == "prepare":
            self._prepare([task_process.TaskPlan(**plan) for plan in command["tasks"]])
        elif command["do"] == "signal":
            self._signal(command["task"], command["signal"])
        elif command["do"] == "end":
            self._end()
        return None

    def _prepare(self, plans: list[task_process.TaskPlan]) -> None:
        """Keep the plans of the tasks and import what they have in common."""
        self._plans = plans
        for plan in plans:
            # The program of another task would hold the pipe open.
            os.set_inheritable(plan.output, False)
            self._private.add(plan.output)
        if processes.IS_LINUX and any(plan.is_module for plan in self._plans):
            try:
                _import_common({plan.work_dir for plan in plans})
            except Exception as problem:  # whatever a package's own code may raise
                self._report("broken", reason=f"{type(problem).__name__}: {problem}")
                raise
            self._forks_modules = processes.thread_count() == 1
        gc.freeze()  # what the tasks share stays shared
        self._report("prepared")

    def _start_tasks(self) -> Callable[[], None] | None:
        for plan in self._plans:
            others = self._private - {plan.output}
            try:
                process, program = task_process.start(plan, others, fork_module=self._forks_modules)
            except task_process.StartError as problem:
                self._report("unstartable", task=plan.name, reason=str(problem), code=problem.code)
                continue
            if program:
                return program
            self._leaders[plan.name] = self._running[plan.name] = process
            self._report("started", task=plan.name)
        for plan in self._plans:
            os.close(plan.output)
        # What has ended before its process id was known here was not looked at.
        self._poll_tasks()
        return None

    def _poll_tasks(self) -> None:
        ends: dict[str, Message] = {}
        for task, process in self._running.items():
            for change in _changes(process):
                if change["saw"] == "exited":
                    ends[task] = change
                else:
                    self._report(**change, task=task)
        # When several ended since the last look, one that was killed is rather the cause.
        for task, end in sorted(ends.items(), key=lambda item: "signal" not in item[1]):
            del self._running[task]
            self._report(**end, task=task)
        for process in set(processes.ended_children()) - set(self._leaders.values()):
            os.waitpid(process, os.WNOHANG)

    def _signal(self, task: str, number: int) -> None:
        if task not in self._leaders:
            return
        names = [plan.container for plan in self._plans if plan.name == task and plan.container]
        if names and number == signal.SIGSTOP:  # first: its stopped process would not start it
            container.call(container.SIGNAL, str(int(number)), *names)
        processes.signal_group(self._leaders[task], number)
        if names and number == signal.SIGKILL:  # the process forwards all others
            container.call(container.SIGNAL, str(int(number)), *names)

    def _end(self) -> None:
        """Kill every group and whatever has left its group, and remove all containers."""
        for leader in self._leaders.values():
            processes.signal_group(leader, signal.SIGKILL)
        processes.kill_descendants(_PATIENCE)
        names = [plan.container for plan in self._plans if plan.container]
        if names:
            container.call(container.REMOVE, *names)
        self._report("ended")

    def _report(self, saw: str, **details: Any) -> None:
        self._control.send({"saw": saw, **details})


def _changes(process: int) -> list[Message]:
    """Return what became of a process since the last call: stopped, continued, exited."""
    return list(_waited_for(process) if hasattr(os, "waitid") else _reaped(process))


def _waited_for(process: int) -> Iterator[Message]:
    with contextlib.suppress(ChildProcessError):  # one that has ended is not there for this
        while change := os.waitid(os.P_PID, process, os.WSTOPPED | os.WCONTINUED | os.WNOHANG):
            yield {"saw": "continued" if change.si_code == os.CLD_CONTINUED else "stopped"}
    # A leader stays a zombie to the end, so that no stranger gets the id of its group.
    end = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if end:
        field = "code" if end.si_code == os.CLD_EXITED else "signal"
        yield {"saw": "exited", field: end.si_status}


def _reaped(process: int) -> Iterator[Message]:
    """Do it where there is no waitid: on macOS before Python 3.13."""
    while True:
        changed, status = os.waitpid(process, os.WUNTRACED | os.WCONTINUED | os.WNOHANG)
        if not changed:
            return
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            code = os.waitstatus_to_exitcode(status)
            yield {"saw": "exited", **({"code": code} if code >= 0 else {"signal": -code})}
            return
        yield {"saw": "continued" if os.WIFCONTINUED(status) else "stopped"}


def _import_common(work_dirs: set[str]) -> None:
    """Import what tasks use without starting a thread: a process with threads cannot be forked."""
    before = {name: os.environ.get(name) for name in WITHOUT_THREADS}
    os.environ.update(WITHOUT_THREADS)
    for module in ("tensorflow", "keras"):
        with contextlib.suppress(ModuleNotFoundError):
            __import__(module)
    # A project's own copy comes first; and what fails here fails in the tasks, which report it.
    if not any(Path(folder, _TRAINER).exists() for folder in work_dirs):
        with contextlib.suppress(Exception):
            __import__(f"{_TRAINER}.run")
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


def main() -> None:
    """Be the host; ``sys.argv[1]`` is the file descriptor of the control stream."""
    del sys.path[0]  # the folder of this package, which is not on the path of the tasks
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    processes.adopt_orphans()
    program = Host(Channel(control)).serve()
    if program:
        control.detach()  # closed already, and its number may be another file's by now
        program()
