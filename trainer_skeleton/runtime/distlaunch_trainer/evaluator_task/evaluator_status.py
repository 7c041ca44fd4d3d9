"""What the chief and the evaluator task exchange, in two files of the job folder.

The evaluator is no member of the cluster, so they share nothing but storage.
``evaluator/status.json`` is the evaluator's: its identity, a count that shows that it works, and
the last checkpoint that it has evaluated. ``evaluator/chief.json`` is the chief's: an identity of
its run and, when training has ended, the final checkpoint and which evaluator may end after it. An
identity is new in each process, so neither mistakes a file of an earlier one for an answer.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from distlaunch_trainer.cluster.peers import peer_timeout
from distlaunch_trainer.errors import StorageError
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.task.debugging import is_debugged
from distlaunch_trainer.task.storage import (
    is_bucket,
    join,
    make_folder,
    read_if_there,
    remove,
    write_whole,
)

EVALUATIONS = "evaluations.jsonl"
_FOLDER, _STATUS, _CHIEF = "evaluator", "status.json", "chief.json"
# The chief looks this often in a bucket.
_BEAT_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 300.0


def has_evaluator(environ: Mapping[str, str]) -> bool:
    """Return whether the job has an evaluator.

    TF_CONFIG of Vertex AI never names one, CLUSTER_SPEC has it as worker pool 3.
    """
    names = {"TF_CONFIG": "evaluator", "CLUSTER_SPEC": "workerpool3"}
    return any(_pool(environ.get(variable), kind) for variable, kind in names.items())


def _pool(text: str | None, kind: str) -> Any:
    """Return the addresses of a pool; role_from() reports what is wrong in a text."""
    try:
        return json.loads(text or "{}")["cluster"][kind]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def poll_seconds(job_dir: str) -> float:
    """Return the time between two looks at a job folder: each is a request to a bucket."""
    return 5.0 if is_bucket(job_dir) else 0.5


class ChiefSide:
    """The chief's part: it announces its run here.

    One that `is_new`, from scratch, removes the evaluations of the one before.
    """

    def __init__(self, job_dir: str, report: Report, *, is_new: bool) -> None:
        self._job_dir = job_dir
        self._folder = join(job_dir, _FOLDER)
        self._report = report
        self._run = uuid.uuid4().hex
        if is_new:
            remove(join(job_dir, EVALUATIONS))
        make_folder(self._folder)
        remove(join(self._folder, _STATUS))
        self._write()

    def wait(self, final: str, is_stopped: Callable[[], bool]) -> None:
        """Wait until the evaluator has evaluated the final checkpoint.

        It gives up with a warning if the evaluator makes no progress for 300 s, or
        ``DISTLAUNCH_PEER_TIMEOUT`` if that is shorter; and at once on a stop signal.
        """
        limit = peer_timeout(os.environ)
        if not is_debugged():
            limit = min(_LONGEST_WAIT_SECONDS, limit)
        known: Any = None
        changed = time.monotonic()
        is_logged = False
        while not is_stopped():
            status = _read(join(self._folder, _STATUS))
            if status is not None and status != known:
                known, changed = status, time.monotonic()
                self._write(final=final, evaluator=status["id"])
            if known and known["evaluated"] == final:
                return
            if not is_logged:
                self._report.log(f"waiting for evaluator:0 to evaluate {final}")
                is_logged = True
            quiet = time.monotonic() - changed
            if quiet > limit:
                self._report.warn(
                    f"evaluator:0 has made no progress for {quiet:.0f} s: {final} was not "
                    "evaluated; see its log, and evaluate it with --evaluate"
                )
                return
            time.sleep(poll_seconds(self._job_dir))

    def _write(self, **facts: str) -> None:
        write_whole(join(self._folder, _CHIEF), json.dumps({"run": self._run, **facts}).encode())


class EvaluatorSide:
    """The evaluator's part."""

    def __init__(self, job_dir: str) -> None:
        self._folder = join(job_dir, _FOLDER)
        make_folder(self._folder)
        self._id = uuid.uuid4().hex
        self._evaluated: str | None = None
        self._beats = 0
        self._written = -_BEAT_SECONDS

    def beat(self) -> None:
        """Show that this task works, at most every 5 s."""
        if time.monotonic() - self._written >= _BEAT_SECONDS:
            self._write()

    def has_evaluated(self, name: str) -> None:
        """Report a checkpoint."""
        self._evaluated = name
        self._write()

    def run(self) -> str | None:
        """Return the identity of the chief's run, None if no chief has started."""
        return self._orders().get("run")

    def final(self) -> str | None:
        """Return the last checkpoint of a training that has ended, otherwise None."""
        orders = self._orders()
        return orders.get("final") if orders.get("evaluator") == self._id else None

    def _orders(self) -> dict[str, Any]:
        return _read(join(self._folder, _CHIEF)) or {}

    def _write(self) -> None:
        self._beats += 1
        self._written = time.monotonic()
        facts = {
            "id": self._id,
            # A count, and no time: the clocks of machines differ.
            "beat": self._beats,
            "evaluated": self._evaluated,
        }
        write_whole(join(self._folder, _STATUS), json.dumps(facts).encode())


def _read(path: str) -> dict[str, Any] | None:
    """Return an object of JSON, None if there is none or storage does not answer now."""
    try:
        text = read_if_there(path)
        return json.loads(text) if text else None
    except (StorageError, ValueError):
        return None
