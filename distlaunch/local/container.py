"""A task in a container: the process that represents it here, and what ends containers.

The host holds one process of this a task. It hands on what the container writes, the signals that
request its end, and its exit code. Containers are children of the engine and not ours, so the host
calls this once more to freeze or kill one, and to remove all when it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

SPEC = "DISTLAUNCH_CONTAINER"  # the variable with what to run
RUN, SIGNAL, REMOVE = "run", "signal", "remove"

_PATIENCE = 10.0  # seconds for the engine to start, freeze or end containers in
_POLL = 0.05
_PACKAGE_PARENT = str(Path(__file__).parents[2])
# From a fixed place of ours, as the host is started, with nothing of the current folder's.
_BOOT = (
    "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from distlaunch.local.container import main; main()"
)


@dataclass(frozen=True, slots=True)
class Spec:
    """A container to run; folders and files are mounted under their own paths."""

    name: str
    image: str
    args: Sequence[str]  # for the image's entrypoint
    environment: Mapping[str, str]  # variables that the image does not set, or sets otherwise
    folders: Sequence[str] = ()  # writable
    files: Sequence[str] = ()  # read-only
    cores: Sequence[int] | None = None  # None for all
    gpus: bool = False  # whether it can use this machine's GPUs; see CUDA_VISIBLE_DEVICES

    def to_environment(self) -> dict[str, str]:
        """Return the variable that `main` reads."""
        return {SPEC: json.dumps(asdict(self))}


def argv(*words: str) -> list[str]:
    """Return the command that runs `main` with some words."""
    return [sys.executable, "-c", _BOOT, _PACKAGE_PARENT, *words]


def call(*words: str) -> None:
    """Run `main` with some arguments, in a process of its own: only it imports Docker's client."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(argv(*words), check=False, timeout=_PATIENCE)


def main() -> None:
    """Run the container of `SPEC`, or signal or remove containers by name."""
    action, *words = sys.argv[1:]
    engine = _engine()
    if action == RUN:
        sys.exit(_run(engine, Spec(**json.loads(os.environ[SPEC]))))
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


def _engine() -> Any:
    from distlaunch.image.docker import connect_docker

    return connect_docker().api


def _not_there() -> type[Exception]:
    from docker.errors import APIError

    return APIError


def _run(engine: Any, spec: Spec) -> int:
    """Run a container to its end and return its exit code."""
    container = engine.create_container(
        spec.image,
        command=list(spec.args) or None,
        name=spec.name,
        environment=dict(spec.environment),
        user=f"{os.getuid()}:{os.getgid()}",  # what it writes is the caller's
        host_config=engine.create_host_config(
            network_mode="host",  # the ports of this machine, as tasks without containers have
            pid_mode="host",  # so that SIGTERM ends what does not handle it: process 1 ignores it
            binds=[f"{path}:{path}" for path in spec.folders]
            + [f"{path}:{path}:ro" for path in spec.files],
            cpuset_cpus=",".join(map(str, spec.cores)) if spec.cores else None,
            device_requests=[_all_gpus()] if spec.gpus else None,
        ),
    )["Id"]
    try:
        output = engine.attach(container, stdout=True, stderr=True, stream=True, demux=True)
        early = _hand_on_signals(engine, container)
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


def _hand_on_signals(engine: Any, container: str) -> list[int]:
    """Send to the container what is sent here; return what came before it could take it."""
    early: list[int] = []

    def hand_on(number: int, _: FrameType | None) -> None:
        try:
            engine.kill(container, number)
        except _not_there():
            early.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, hand_on)
    return early


def _all_gpus() -> Any:
    from docker.types import DeviceRequest

    return DeviceRequest(count=-1, capabilities=[["gpu"]])


def _write(descriptor: int, data: bytes | None) -> None:
    view = memoryview(data or b"")
    while view:
        view = view[os.write(descriptor, view) :]
