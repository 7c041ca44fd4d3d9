"""What a backend (containers, processes) must do to run the replicas of a job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from distlaunch.local.lines import Lines

if TYPE_CHECKING:
    from distlaunch.emulator.run.job_spec import Replica, Workload

START_ERROR = 128
"""The exit code of a replica that could not be started, as containers have it."""

Severity = Literal["INFO", "ERROR"]
WriteLine = Callable[[Severity, str], None]
"""Receives a line that a replica wrote to stdout (INFO) or stderr (ERROR), without its end."""


class CannotRun(Exception):
    """A job cannot be run; the text is the message of the job's error."""


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a replica ended; the code is 128+n for signal n."""

    code: int
    out_of_memory: bool = False


OnExit = Callable[[ExitStatus], None]


class CancellationToken:
    """Cancels a job, or ends it because the emulator shuts down."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self.is_shutdown = False

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self, *, shutdown: bool = False) -> None:
        self.is_shutdown |= shutdown
        self._cancelled.set()

    def wait(self, seconds: float) -> bool:
        """Wait for a cancellation; return whether there is one."""
        return self._cancelled.wait(seconds)


class RunningReplica(Protocol):
    """A replica that was started."""

    def stop(self, grace: float) -> None:
        """Send SIGTERM now and SIGKILL after `grace` seconds; return at once."""


class JobEnvironment(Protocol):
    """The addresses and folders of one run of a job, in which its replicas are started."""

    def start(self, replica: Replica, write: WriteLine, on_exit: OnExit) -> RunningReplica:
        """Start a replica, for the first time or again at the same address.

        `on_exit` is called once, from any thread and after the last line. A replica that cannot be
        started ends with `START_ERROR`, and the reason is a line.
        """

    def metrics(self) -> str:
        """Return what the primary replica wrote to CLOUD_ML_HP_METRIC_FILE, JSON lines."""

    def close(self) -> None:
        """Kill what still runs and remove all that was created for the job."""


class Backend(Protocol):
    """Runs replicas as containers or as processes."""

    def prepare(self, workload: Workload, token: CancellationToken) -> JobEnvironment:
        """Prepare images, network or ports, and folders."""

    def close(self) -> None:
        """Remove what is left of any job; the emulator shuts down."""


class LineWriter:
    """Splits what a replica writes to a stream into lines."""

    def __init__(self, severity: Severity, write: WriteLine) -> None:
        self._severity = severity
        self._write = write
        self._lines = Lines()

    def feed(self, data: bytes) -> None:
        self._write_all(self._lines.feed(data))

    def close(self) -> None:
        """Write the last line if it has no end."""
        self._write_all(self._lines.close())

    def _write_all(self, lines: bytes) -> None:
        for line in lines.decode("utf-8", "replace").split("\n")[:-1]:
            self._write(self._severity, line)
