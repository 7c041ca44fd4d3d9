"""A task in a container: the process that represents it here, and what ends containers.

The host holds one process of this a task. It forwards what the container writes, the signals that
request its end, and its exit code. Containers are children of Docker, so the host calls this once
more to freeze or kill one, and to remove all when it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from distlaunch.python_command import python_command

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

SPEC = "DISTLAUNCH_CONTAINER"  # the variable with docker-py's arguments of what to run, as JSON
RUN, SIGNAL, REMOVE = "run", "signal", "remove"

_PATIENCE = 10.0  # seconds for the engine to start, freeze or end containers in
_POLL = 0.05


def argv(*words: str) -> list[str]:
    """Return the command that runs `main` with some words."""
    return python_command(__name__, *words)


def call(*words: str) -> None:
    """Run `main` with some arguments, in a process of its own: only it imports Docker's client."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(argv(*words), check=False, timeout=_PATIENCE)


def main() -> None:
    """Run the container of `SPEC`, or signal or remove containers by name."""
    from distlaunch.docker_client import connect_docker

    action, *words = sys.argv[1:]
    engine = connect_docker().api
    if action == RUN:
        sys.exit(_run(engine, json.loads(os.environ[SPEC])))
    for name in words[1:] if action == SIGNAL else words:
        with contextlib.suppress(_not_there()):
            if action == REMOVE:
                engine.remove_container(name, force=True)
            elif int(words[0]) == signal.SIGSTOP:
                _pause(engine, name)
            else:
                engine.kill(name, int(words[0]))


def _pause(engine: Any, name: str) -> None:
    """Pause a container as soon as it runs; `call` ends this process if it never does."""
    status = "created"
    while status == "created":
        with contextlib.suppress(_not_there()):
            status = engine.inspect_container(name)["State"]["Status"]
        if status == "created":
            time.sleep(_POLL)
    if status == "running":
        engine.pause(name)


def _not_there() -> type[Exception]:
    from docker.errors import APIError

    return APIError


def _run(engine: Any, spec: Mapping[str, Any]) -> int:
    """Run a container to its end and return its exit code."""
    host_config = engine.create_host_config(**spec["host_config"])
    container = engine.create_container(**{**spec, "host_config": host_config})["Id"]
    try:
        output = engine.attach(container, stdout=True, stderr=True, stream=True, demux=True)
        early = _forward_signals(engine, container)
        engine.start(container)
        for number in early:
            engine.kill(container, number)
        for out, err in output:
            _write(1, out)
            _write(2, err)
        return int(engine.wait(container)["StatusCode"])
    finally:
        with contextlib.suppress(_not_there()):
            engine.remove_container(container, force=True)


def _forward_signals(engine: Any, container: str) -> list[int]:
    """Send the signals of this process to the container; return those that came before it ran."""
    early: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        try:
            engine.kill(container, number)
        except _not_there():
            early.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    return early


def _write(descriptor: int, data: bytes | None) -> None:
    view = memoryview(data or b"")
    while view:
        view = view[os.write(descriptor, view) :]
