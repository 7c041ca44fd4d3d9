"""`distlaunch tensorboard` on a local run and one whose folder is in a bucket."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from ..trainer_skeleton.runs.cloud_storage import CloudStorage  # noqa: TID252 - no package

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.slow
def test_tensorboard_shows_two_runs_side_by_side(project, train, tmp_path):
    names = [train(0.5), train(0.25)]
    for module in ("werkzeug", "tensorboard"):  # as a clone may have them
        (project / f"{module}.py").write_text("raise SystemExit('imported from the project')")
    for number, name in enumerate(names):
        write_scalar(project / ".distlaunch/local" / name / "logs/train", number + 1.5)
    with CloudStorage(tmp_path) as storage:
        move_to_bucket(project / ".distlaunch/local" / names[1], storage)
        with run_tensorboard(project, names, storage.environment) as url:
            assert set(fetch_list(f"{url}/data/runs", 2)) == {f"{name}/train" for name in names}
            # TensorBoard gives runs of the same time in any order.
            for number, name in enumerate(names):
                query = f"tag=a&run={name}/train"
                [point] = fetch_list(f"{url}/data/plugin/scalars/scalars?{query}", 1)
                assert point[1:] == [1, number + 1.5]
    shown = (project / "errors").read_text()
    assert f"at {url.replace('127.0.0.1', 'localhost')}/" in shown
    assert not re.search(r"oneDNN|cpu_feature_guard|absl::", shown)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_tensorboard(project, train, number):
    command = [sys.executable, "-m", "distlaunch", "tensorboard", train(0.5), "--port=0"]
    with subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE) as process:
        assert any(b"starting TensorBoard" in line for line in process.stderr)
        until = time.monotonic() + 60
        while not (children := psutil.Process(process.pid).children()):
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == (0 if number == signal.SIGINT else 128 + number)
    assert not any(child.is_running() for child in children)


def test_a_port_of_another_server_is_reported_before_tensorboard_starts(run, project, train):
    train(0.5)
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
        done = run("tensorboard", "--port", port, cwd=project)
    assert done.code == 1
    assert f"port {port} cannot be used (address already in use); choose another" in done.err


def move_to_bucket(folder: Path, storage: CloudStorage) -> None:
    """Move the logs of a run to a bucket, as if it had trained with --job-dir gs://."""
    for path in (folder / "logs").rglob("events*"):
        storage.put(f"jobs/{folder.name}/{path.relative_to(folder)}", path.read_bytes())
    shutil.rmtree(folder / "logs")
    record = json.loads((folder / "run.json").read_text())
    record["job_dir"] = f"gs://jobs/{folder.name}"
    (folder / "run.json").write_text(json.dumps(record))


@contextmanager
def run_tensorboard(project: Path, names: list[str], environment: dict[str, str]) -> Iterator[str]:
    """Run `distlaunch tensorboard`, and yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("tensorboard", *names, "--port", str(port))
    with (project / "errors").open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", "distlaunch", *words],
            cwd=project,
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def fetch_list(url, length):
    """Return the list that a server answers, once it has a length."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with suppress(OSError), opener.open(url, timeout=10) as answer:
            values = json.load(answer)
            if len(values) == length:
                return values
        time.sleep(0.2)
    pytest.fail(f"{url}: no answer of {length}")


def write_scalar(folder: Path, value: float) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    writer.add_event(
        Event(step=1, summary=Summary(value=[Summary.Value(tag="a", simple_value=value)]))
    )
    writer.close()
