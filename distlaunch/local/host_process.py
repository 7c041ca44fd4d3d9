"""The launcher's side of the host process that holds the tasks of one attempt."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from dataclasses import asdict, replace
from typing import IO, TYPE_CHECKING

from distlaunch.errors import DistlaunchError
from distlaunch.local import container, processes
from distlaunch.local.host import Channel
from distlaunch.local.output import open_pipe
from distlaunch.python_command import python_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from distlaunch.local.task_process import TaskPlan


_PATIENCE = 25.0  # seconds in which the host, which gives up after ten twice, has ended everything


class HostProcess:
    """A host process with the tasks of one attempt; its own output goes to `host_log`."""

    def __init__(
        self, plans: Sequence[TaskPlan], *, env: Mapping[str, str], host_log: Path
    ) -> None:
        # If the host is killed, its descendants become children of this process, which kills them.
        processes.adopt_orphans()
        # What this process started before is not the job's.
        self._spared = set(processes.living_descendants())
        self.host_log = host_log
        self.outputs: dict[str, int] = {}
        writing: dict[str, int] = {}
        for plan in plans:
            self.outputs[plan.name], writing[plan.name] = open_pipe()
        ours, theirs = socket.socketpair()
        with theirs, host_log.open("wb") as log:
            self._host = start_host(theirs.fileno(), list(writing.values()), env, log)
        for end in writing.values():
            os.close(end)
        self.control = Channel(ours)
        self._containers = [plan.container for plan in plans if plan.container]
        self._is_prepared = False
        tasks = [asdict(replace(plan, output=writing[plan.name])) for plan in plans]
        self.control.send({"do": "prepare", "tasks": tasks})

    def start(self) -> None:
        """Start the tasks; the host has reported that it is prepared."""
        self._is_prepared = True
        self.control.send({"do": "go"})

    def signal(self, task: str, number: int) -> None:
        """Signal a task and all of its process group."""
        self.control.send({"do": "signal", "task": task, "signal": number})

    def request_kill(self) -> None:
        """Have the host kill everything, without waiting for it."""
        # While it imports TensorFlow, the host reads no commands.
        if self._is_prepared:
            self.control.send({"do": "end"})
        else:
            self._host.kill()

    def end(self) -> None:
        """Kill every process that is left."""
        self.request_kill()
        has_ended = False
        self.control.stream.settimeout(_PATIENCE)
        with contextlib.suppress(TimeoutError):
            while self.control.is_open and not has_ended:
                has_ended = any(message["saw"] == "ended" for message in self.control.receive())
        self.control.stream.close()
        if self._containers and not has_ended:
            container.call(container.REMOVE, *self._containers)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._host.wait(_PATIENCE)
        self._host.kill()
        # The host leaves no process; if it was killed, its tasks are children of this process.
        is_clean = processes.kill_descendants(_PATIENCE, self._spared)
        self._host.wait()
        processes.reap_all()
        if not is_clean:
            left = ", ".join(map(str, processes.living_descendants(self._spared)))
            raise DistlaunchError(f"processes that cannot be killed are left: {left}")


def start_host(
    control: int, pipes: list[int], env: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start the host with its end of the control stream and the tasks' ends of their pipes."""
    return subprocess.Popen(
        python_command("distlaunch.local.host", str(control)),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=dict(env),
        pass_fds=[control, *pipes],
        # Ctrl-C on the terminal is for the launcher alone, which has the tasks save.
        start_new_session=True,
    )
