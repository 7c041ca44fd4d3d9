"""TensorBoard on the log folders of runs and jobs."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError, os_reason
from distlaunch.paths import LOGS
from distlaunch.python_command import python_command
from distlaunch.resources import INSTALL_TENSORFLOW
from distlaunch.stop_signals import StopSignals
from distlaunch.tensorflow_noise import without_noise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.events import ShowMessage
    from distlaunch.runs.view import RunView


def run_tensorboard(folders: Mapping[str, str], port: int, show_message: ShowMessage) -> int:
    """Run TensorBoard on named folders until it or this process is ended; return the exit code.

    DistlaunchError is raised if it is not installed, or a path cannot be shown beside others.
    """
    if find_spec("tensorboard") is None:
        raise DistlaunchError(
            "TensorBoard is not installed here; run pip install 'tensorboard>=2.18'"
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("localhost", port))
        except OSError as problem:
            reason = f"port {port} cannot be used ({os_reason(problem)})"
            raise DistlaunchError(f"{reason}; choose another with --port, or 0 for any") from None
    words = [*log_options(folders), f"--port={port}"]
    command = python_command("tensorboard.main", *words, function="run_main")
    for name, folder in folders.items():
        show_message(f"{name}: {folder}")
    show_message("starting TensorBoard")
    with (
        StopSignals() as signals,
        subprocess.Popen(command, stderr=subprocess.PIPE) as server,
    ):
        signals.at_first, signals.at_second = server.terminate, server.kill
        received = signals.received()  # before it could be ended
        if received:
            server.terminate()
        for line in server.stderr or ():  # TensorFlow writes most of them as it starts
            sys.stderr.buffer.write(without_noise(line))
            sys.stderr.flush()
        received += signals.received()
    if received:
        return 0 if received[0] == signal.SIGINT else 128 + received[0]
    return server.returncode


def log_folder(view: RunView, endpoint: str | None = None) -> str:
    """Return where a run writes for TensorBoard; `endpoint` is the one that replaces Google's.

    DistlaunchError is raised if it has no folder that TensorBoard can read here.
    """
    if view.job_dir is None:
        raise DistlaunchError(f"{view.id}: the job has no job folder, so it writes no logs there")
    if view.job_dir.startswith("gs://"):
        if endpoint:
            raise DistlaunchError(
                f"{view.id}: TensorBoard reads gs:// from Google only; run it on the folder of the "
                "emulator's --storage"
            )
        if find_spec("tensorflow") is None:
            raise DistlaunchError(
                f"{view.id}: TensorBoard needs TensorFlow to read {view.job_dir}; run "
                f"{INSTALL_TENSORFLOW}"
            )
    return f"{view.job_dir.rstrip('/')}/{LOGS}"


def log_options(folders: Mapping[str, str]) -> list[str]:
    """Return TensorBoard's options for named folders, side by side if there are several."""
    if len(folders) == 1:
        return [f"--logdir={folder}" for folder in folders.values()]
    for folder in folders.values():
        if "," in folder:
            raise DistlaunchError(
                f"{folder}: TensorBoard cannot show several folders with a comma in a path"
            )
    return ["--logdir_spec=" + ",".join(f"{name}:{folder}" for name, folder in folders.items())]
