"""The lives of jobs: states over time, and how a job ends."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.run.group import Group, Outcome, Stop
from distlaunch.emulator.run.work import expects_gpus, scheduling, work
from distlaunch.emulator.store import ENDED, UnknownJob
from distlaunch.job.tf_config import EXPECTED_GPUS

if TYPE_CHECKING:
    from distlaunch.emulator.logs import Logs
    from distlaunch.emulator.run.running import Machines, Work
    from distlaunch.emulator.store import Store

# google.rpc.Code
_CANCELLED, _INVALID_ARGUMENT, _DEADLINE_EXCEEDED, _INTERNAL = 1, 3, 4, 13

_LAST_WORDS = {
    "JOB_STATE_SUCCEEDED": "Job completed successfully.",
    "JOB_STATE_FAILED": "Job failed.",
    "JOB_STATE_CANCELLED": "Job cancelled.",
}
_NO_GPUS = f"The emulator has no GPUs: {EXPECTED_GPUS} is 0 in all replicas, which use CPUs."
_PATIENCE = 30.0  # seconds for all jobs to end in when the emulator ends

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a job stays in the states in which nothing of its own happens; in seconds.

    Parameters
    ----------
    queued, pending
        Before it is PENDING, and before its replicas start.
    error
        Between a job's end and the moment that its error is told; Vertex AI takes about a minute.
    grace
        Between SIGTERM and SIGKILL for replicas that are stopped.
    expires
        Whether jobs end EXPIRED instead of leaving the queue.
    """

    queued: float = 0.1
    pending: float = 0.1
    error: float = 0.3
    grace: float = 5.0
    expires: bool = False


class Lives:
    """Runs the jobs of a store, each from its creation to its end.

    Parameters
    ----------
    store
        Where the jobs are, and what becomes of them is told.
    machines
        What runs the replicas.
    logs
        Where their lines go.
    pace
        How long things take.
    """

    def __init__(
        self, store: Store, machines: Machines, logs: Logs, *, pace: Pace | None = None
    ) -> None:
        self._store = store
        self._machines = machines
        self._logs = logs
        self._pace = pace or Pace()
        self._lock = threading.Lock()
        self._lives: dict[str, tuple[Life, threading.Thread]] = {}

    def begin(self, name: str) -> None:
        """Start the life of a job that is in the store, JOB_STATE_QUEUED; returns at once.

        Parameters
        ----------
        name
            The job's whole name, as the store made it.
        """
        life = Life(name, self._store, self._machines, self._logs, self._pace)
        thread = threading.Thread(target=self._live, args=(life,), name=name, daemon=True)
        with self._lock:
            self._lives[name] = life, thread
        thread.start()

    def cancel(self, name: str) -> None:
        """Have a job end CANCELLED, by way of CANCELLING; one that has ended is left as it is."""
        with self._lock:
            found = self._lives.get(name)
        if found:
            found[0].cancel()

    def close(self) -> None:
        """End all lives and leave nothing running; the emulator ends."""
        with self._lock:
            lives = list(self._lives.values())
        for life, _ in lives:
            life.stop.ask("closed")
        for _, thread in lives:
            thread.join(_PATIENCE)
        self._machines.close()

    def _live(self, life: Life) -> None:
        try:
            life.live()
        except UnknownJob:
            pass  # it was deleted before it began
        except Exception as problem:  # noqa: BLE001 - the others' lives go on
            _log.error("%s: %r", life.name, problem, exc_info=_log.isEnabledFor(logging.DEBUG))
            life.fail_internally()
        finally:
            with self._lock:
                self._lives.pop(life.name, None)


class Life:
    """The life of one job.

    Parameters
    ----------
    name
        The job's.
    """

    def __init__(self, name: str, store: Store, machines: Machines, logs: Logs, pace: Pace) -> None:
        self.name = name
        self.stop = Stop()
        self.pace = pace
        self._store = store
        self._machines = machines
        self._logs = logs
        self._lock = threading.Lock()
        self._has_ended = False

    def live(self) -> None:
        """Go from state to state, and to the end."""
        job = self._store.get(self.name)
        if self._wait_in_queue() and self._wait_for_machines():
            self._end(self._run(job))
        elif not self._has_ended:
            self._end(Outcome("stopped"))

    def cancel(self) -> None:
        """Be CANCELLING from now on, and CANCELLED when all replicas have ended."""
        with self._lock:
            if self._has_ended or self.stop.reason:
                return
            self._store.update(self.name, state="JOB_STATE_CANCELLING")
            self.stop.ask("cancelled")

    def fail_internally(self) -> None:
        """End for a fault of the emulator's own."""
        self._finish("JOB_STATE_FAILED", _INTERNAL, "Internal error occurred.")

    def group(self, whole: Work, spec: dict[str, Any], stop: Stop | None = None) -> Group:
        """Return what runs this job, or a trial of it."""
        return Group(
            whole,
            machines=self._machines,
            logs=self._logs,
            scheduling=scheduling(spec),
            stop=stop or self.stop,
            grace=self.pace.grace,
        )

    def has_started(self) -> None:
        """Be RUNNING, if that is not so yet."""
        if self._change("JOB_STATE_RUNNING", startTime=self.now()):
            self.say("INFO", "Job is running.")

    def now(self) -> str:
        """Return the time."""
        return self._store.now()

    def update(self, **changes: object) -> None:
        """Change other fields than the state."""
        self._store.update(self.name, **changes)

    def say(self, severity: str, text: str) -> None:
        """Write a line of the platform's own."""
        self._logs.add(self.name.rpartition("/")[2], "service", severity, text)

    def _wait_in_queue(self) -> bool:
        self.say("INFO", "Waiting for job to be provisioned.")
        if self.stop.sleep(self.pace.queued):
            return False
        if self.pace.expires:
            why = "The job expired: it could not get its resources within maxWaitDuration."
            self._finish("JOB_STATE_EXPIRED", _DEADLINE_EXCEEDED, why)
            return False
        return self._change("JOB_STATE_PENDING")

    def _wait_for_machines(self) -> bool:
        self.say("INFO", "Waiting for training program to start.")
        return not self.stop.sleep(self.pace.pending)

    def _run(self, job: dict[str, Any]) -> Outcome:
        if expects_gpus(job.get("trialJobSpec") or job["jobSpec"]):
            self.say("WARNING", _NO_GPUS)
        if "trialJobSpec" in job:
            from distlaunch.emulator.run.trials import Tuning

            return Tuning(self, job).run()
        spec = job["jobSpec"]
        return self.group(work(self.name, spec), spec).run(self.has_started)

    def _end(self, outcome: Outcome) -> None:
        if self.stop.reason == "closed":
            return  # nobody is there to be told
        match outcome.kind:
            case "succeeded":
                self._finish("JOB_STATE_SUCCEEDED")
            case "failed":
                self._finish("JOB_STATE_FAILED", _INVALID_ARGUMENT, outcome.error)
            case "stopped":
                self._finish("JOB_STATE_CANCELLED", _CANCELLED, "CANCELED")
            case "timed out":
                why = "The job ran longer than its scheduling.timeout and was cancelled."
                self._finish("JOB_STATE_CANCELLED", _DEADLINE_EXCEEDED, why)

    def _finish(self, state: str, code: int = 0, error: str = "") -> None:
        """Be in a state that is the last, and tell the error some moments later."""
        if code not in (0, _CANCELLED):
            self.say("ERROR", error)
        if state in _LAST_WORDS:
            self.say("INFO", _LAST_WORDS[state])
        if self._change(state, endTime=self.now()) and code:
            time.sleep(self.pace.error)
            self.update(error={"code": code, "message": error})

    def _change(self, state: str, **changes: object) -> bool:
        """Get into a state, unless the job has ended or is being cancelled; returns whether so."""
        with self._lock:
            if self._has_ended or (self.stop.reason and state not in ENDED):
                return False
            self._has_ended = state in ENDED
            self._store.update(self.name, state=state, **changes)
            return True
