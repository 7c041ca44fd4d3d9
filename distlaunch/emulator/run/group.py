"""The replicas of one job, from their start until the job is done, has failed or is stopped."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal

from distlaunch.emulator.run.restarts import Next, Restarts
from distlaunch.emulator.run.running import START_ERROR, CannotRun, Ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.emulator.logs import Logs
    from distlaunch.emulator.run.running import (
        Machines,
        Replica,
        Running,
        Severity,
        Site,
        Work,
    )
    from distlaunch.emulator.run.work import Scheduling
    from distlaunch.job.model import Task

Reason = Literal["cancelled", "closed"]

_QUOTED_LINES = 20  # of what a failed replica wrote last, in its error


class Stop:
    """A wish that a job should stop, which all who work for the job can see and wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._reason: Reason | None = None
        self._bells: list[Callable[[], None]] = []

    @property
    def reason(self) -> Reason | None:
        """Why to stop, or None. That the emulator ends takes the place of a cancellation."""
        return self._reason

    def ask(self, reason: Reason) -> None:
        """Ask for it."""
        with self._lock:
            if self._reason != "closed":
                self._reason = reason
            bells = list(self._bells)
        self._asked.set()
        for ring in bells:
            ring()

    def when_asked(self, ring: Callable[[], None]) -> None:
        """Have something called each time that it is asked for, and now if it was."""
        with self._lock:
            self._bells.append(ring)
        if self._reason:
            ring()

    def sleep(self, seconds: float) -> bool:
        """Wait; returns early, and whether so, if it is asked for."""
        return self._asked.wait(seconds)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job's run ended.

    Parameters
    ----------
    error
        What failed, in Vertex AI's words.
    measurements
        What the program told of its metrics, as JSON lines.
    """

    kind: Literal["succeeded", "failed", "stopped", "timed out"]
    error: str = ""
    measurements: str = ""


class Group:
    """Runs one job, or one trial, with the restarts that it may need.

    Parameters
    ----------
    work
        What to run.
    machines
        What runs it.
    logs
        Where the lines go.
    scheduling
        Time and restarts.
    stop
        The wish to end it.
    grace
        Seconds between SIGTERM and SIGKILL for replicas that are stopped.
    """

    def __init__(
        self,
        work: Work,
        *,
        machines: Machines,
        logs: Logs,
        scheduling: Scheduling,
        stop: Stop,
        grace: float,
    ) -> None:
        self._work = work
        self._machines = machines
        self._logs = logs
        self._stop = stop
        self._grace = grace
        self._timeout = scheduling.timeout
        self._restarts = Restarts(scheduling)
        self._running: dict[Task, Running] = {}
        self._last_errors: dict[Task, deque[str]] = {}
        self._happened: SimpleQueue[tuple[Replica, Ended] | None] = SimpleQueue()

    def run(self, at_start: Callable[[], None]) -> Outcome:
        """Run it to its end; nothing of it is left then.

        Parameters
        ----------
        at_start
            Called when all replicas have been started.
        """
        self._stop.when_asked(lambda: self._happened.put(None))
        try:
            site = self._machines.site(self._work, lambda: self._stop.reason is None)
        except CannotRun as problem:
            return Outcome("stopped") if self._stop.reason else Outcome("failed", str(problem))
        try:
            self._note_what_is_not_started()
            self._start_all(site)
            at_start()
            return self._follow(site)
        finally:
            site.close()

    def _follow(self, site: Site) -> Outcome:
        until = time.monotonic() + self._timeout
        while True:
            if self._stop.reason:
                return self._ended("stopped", site)
            try:
                happened = self._happened.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return self._ended("timed out", site)
            if happened is None:
                continue
            replica, ended = happened
            del self._running[replica.task]
            if ended.code:
                failure = self._mend(site, replica, ended)
                if failure:
                    return failure
            elif replica is self._work.replicas[0]:
                return self._ended("succeeded", site)

    def _mend(self, site: Site, replica: Replica, ended: Ended) -> Outcome | None:
        """Restart what has to be, or return how the job has failed."""
        match self._restarts.after(replica.task, ended):
            case Next.RESTART_REPLICA:
                self._say("INFO", f"Restarting {replica.name}, which ended with {ended.code}.")
                self._start(site, replica)
            case Next.RESTART_JOB:
                self._say("INFO", f"Restarting the job: {replica.name} ended with {ended.code}.")
                self._stop_all()
                self._start_all(site)
            case Next.FAIL:
                return self._ended("failed", site, self._error(replica, ended))
        return None

    def _ended(
        self,
        kind: Literal["succeeded", "failed", "stopped", "timed out"],
        site: Site,
        error: str = "",
    ) -> Outcome:
        self._say("INFO", "Tearing down training program.")
        self._stop_all()
        self._say("INFO", "Finished tearing down training program.")
        return Outcome(kind, error, site.measurements())

    def _note_what_is_not_started(self) -> None:
        count = sum(not replica.is_started for replica in self._work.replicas)
        if count:
            replicas = f"{count} replica{'s are' if count > 1 else ' is'}"
            why = "as the emulator does not have Google's image"
            self._say("INFO", f"Reduction Server: its {replicas} not started, {why}.")

    def _start_all(self, site: Site) -> None:
        for replica in self._work.replicas:
            if replica.is_started:
                self._start(site, replica)

    def _start(self, site: Site, replica: Replica) -> None:
        last = self._last_errors[replica.task] = deque(maxlen=_QUOTED_LINES)

        def write(severity: Severity, text: str) -> None:
            if severity == "ERROR":
                last.append(text)
            self._write(replica.name, severity, text)

        self._running[replica.task] = site.start(
            replica, write, lambda ended: self._happened.put((replica, ended))
        )

    def _stop_all(self) -> None:
        """Stop what runs and wait until it has ended; at once where the emulator ends."""
        grace = 0.0 if self._stop.reason == "closed" else self._grace
        for running in self._running.values():
            running.stop(grace)
        while self._running:
            happened = self._happened.get()
            if happened is not None:
                del self._running[happened[0].task]
            elif self._stop.reason == "closed":
                for running in self._running.values():
                    running.stop(0.0)

    def _error(self, replica: Replica, ended: Ended) -> str:
        """Say how a replica failed, in Vertex AI's words."""
        if ended.out_of_memory:
            what = f"ran out of memory and exited with a non-zero status of {ended.code}."
        else:
            reason = "StartError" if ended.code == START_ERROR else "Error"
            what = f"exited with a non-zero status of {ended.code}. Termination reason: {reason}."
        quoted = "".join(f"\n{line}" for line in self._last_errors[replica.task])
        link = (
            "https://console.cloud.google.com/logs/viewer"
            f"?project={self._work.project_number}&resource=ml_job%2Fjob_id%2F{self._work.job_id}"
            "&advancedFilter=resource.type%3D%22ml_job%22%0A"
            f"resource.labels.job_id%3D%22{self._work.job_id}%22"
        )
        return (
            f"The replica {replica.name} {what} {quoted}\n\n"
            f"To find out more about why your job exited please check the logs: {link}"
        )

    def _say(self, severity: Severity, text: str) -> None:
        self._write("service", severity, text)

    def _write(self, name: str, severity: Severity, text: str) -> None:
        self._logs.add(self._work.job_id, name, severity, text, trial=self._work.trial)
