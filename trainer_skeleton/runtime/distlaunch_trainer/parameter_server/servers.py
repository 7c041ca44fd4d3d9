"""The worker and ps tasks: a TensorFlow server until the job ends."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import NoReturn

import tensorflow as tf

from distlaunch_trainer.cluster.peers import peer_timeout
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import ClusterError, summarize
from distlaunch_trainer.task import messages, stop_signal
from distlaunch_trainer.task.addresses import listens
from distlaunch_trainer.task.job_folders import folders_from
from distlaunch_trainer.task.storage import join

from .connection import cluster_spec, prepare_environment

_POLL_SECONDS = 1.0
# For which a platform may take to restart it.
_CHIEF_GONE_SECONDS = 10.0


def is_server(role: Role, options: argparse.Namespace) -> bool:
    """Return whether a task is to run a server: a worker or ps of a cluster with parameter servers.

    With ``--evaluate`` none is needed: the chief evaluates alone. A script's options have no
    strategy.
    """
    is_requested = getattr(options, "strategy", "multi-worker") in (None, "parameter-server")
    return bool(role.parameter_servers) and role.type in ("worker", "ps") and is_requested


def serve(role: Role, options: argparse.Namespace) -> NoReturn:
    """Run the server of a task, and end this process when the job has ended.

    The exit code is 0 if the chief has written ``summary.json`` since, 143 after SIGTERM, and 1 if
    the chief is gone: a platform then starts the task again.
    """
    job_dir = folders_from(options.job_dir, os.environ).job
    if options.evaluate:
        _end(0)
    prepare_environment(role)
    summary = _Summary(job_dir)
    try:
        server = tf.distribute.Server(
            cluster_spec(role),
            job_name=role.type,
            task_index=int(role.name.partition(":")[2]),
            protocol="grpc",
        )
    except (tf.errors.OpError, RuntimeError) as error:
        raise ClusterError(f"{role.name} cannot serve: {summarize(error)}") from error
    chief = role.addresses[role.peers.index("chief")]
    _wait_for_chief(role, chief, summary)
    _wait_for_end(chief, summary)
    assert server is not None
    if summary.is_new():
        _end(0)
    messages.error(
        f"{role.name}: the chief ({chief}) is gone, and has not finished the job: see its log; a "
        "restart resumes from the last checkpoint"
    )
    _end(1)


def _wait_for_chief(role: Role, chief: str, summary: _Summary) -> None:
    limit = peer_timeout(os.environ)
    until = time.monotonic() + limit
    while not listens(chief):
        if time.monotonic() > until:
            raise ClusterError(
                f"{role.name}: chief ({chief}) did not come within {limit:.0f} s: see whether that "
                "task runs and its address can be reached (DISTLAUNCH_PEER_TIMEOUT sets the limit)"
            )
        _sleep(summary)


def _wait_for_end(chief: str, summary: _Summary) -> None:
    """Return when the chief has not answered for some time."""
    last_seen = time.monotonic()
    while time.monotonic() < last_seen + _CHIEF_GONE_SECONDS:
        _sleep(summary)
        if listens(chief):
            last_seen = time.monotonic()
        elif summary.is_new():
            return


def _sleep(summary: _Summary) -> None:
    """Sleep for a second; end when SIGTERM is sent."""
    if stop_signal.sleep(_POLL_SECONDS):
        _end(0 if summary.is_new() else stop_signal.STOPPED)


class _Summary:
    """The chief's ``summary.json``, which it writes when the job is done."""

    def __init__(self, job_dir: str) -> None:
        self._path = join(job_dir, "summary.json")
        self._before = self._changed()

    def is_new(self) -> bool:
        """Return whether it was written since this object was made."""
        return self._changed() not in (None, self._before)

    def _changed(self) -> int | None:
        """Return when it was written, in nanoseconds; None where it cannot be read."""
        try:
            return int(tf.io.gfile.stat(self._path).mtime_nsec)
        except (tf.errors.OpError, OSError):
            return None


def _end(code: int) -> NoReturn:
    """End without TensorFlow's shutdown, which would wait for other tasks."""
    sys.stdout.flush()
    os._exit(code)
