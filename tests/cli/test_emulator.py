"""`distlaunch emulator` as its user meets it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import requests

from distlaunch.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOBS = "/v1/projects/my-project/locations/us-central1/customJobs"
COMMAND = (sys.executable, "-m", "distlaunch")
EMULATOR = ("emulator", "--port=0", "--run-with=process")


class Running:
    """An emulator process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.first_line = process.stdout.readline()
        self.url = self.first_line.strip()

    def call(self, path: str, body: object = None) -> dict[str, Any]:
        method = "GET" if body is None else "POST"
        return requests.request(method, self.url + path, json=body, timeout=30).json()

    def end(self, number: int) -> str:
        """Send a signal and return what was written to stderr; stdout has only the URL."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        assert out == ""
        return err


@pytest.fixture
def emulator(tmp_path):
    """Start `distlaunch emulator` on a free port."""

    @contextmanager
    def start(*options: str, before: tuple[str, ...] = ()) -> Iterator[Running]:
        process = subprocess.Popen(
            [*COMMAND, *before, *EMULATOR, *options],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(tmp_path)},
        )
        try:
            yield Running(process)
        finally:
            process.kill()
            process.communicate()

    return start


def job(script: str) -> dict[str, Any]:
    container = {"imageUri": "host/image:1", "command": ["sh", "-c", script]}
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": container,
    }
    return {"displayName": "digits", "jobSpec": {"workerPoolSpecs": [pool]}}


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_url_runs_jobs_and_leaves_nothing(emulator, tmp_path, number):
    with emulator() as running:
        port = running.first_line.strip().rpartition(":")[2]
        assert running.first_line == f"http://127.0.0.1:{port}\n"
        script = f"echo $$ > {tmp_path}/pid; sleep 300 & echo $! >> {tmp_path}/pid; wait"
        name = running.call(JOBS, job(script))["name"]
        pid = tmp_path / "pid"
        wait_until(lambda: pid.exists() and len(pid.read_text().split()) == 2)
        wait_until(lambda: running.call(f"/v1/{name}")["state"] == "JOB_STATE_RUNNING")
        err = running.end(number)
        assert running.process.returncode == 0
    assert f"to use it: export DISTLAUNCH_ENDPOINT={running.url}\n" in err
    assert "distlaunch: shutting down; cancelling running jobs\n" in err
    assert not any(map(psutil.pid_exists, map(int, pid.read_text().split())))
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]


def test_logs_and_buckets_of_a_job_that_fails(emulator, tmp_path):
    with emulator("--storage", "kept", "--region", "europe-west4") as running:
        name = running.call(JOBS, job("echo to stdout; echo to stderr >&2; exit 7"))["name"]
        wait_until(lambda: "error" in running.call(f"/v1/{name}"))
        ended = running.call(f"/v1/{name}")
        assert ended["state"] == "JOB_STATE_FAILED"
        assert "non-zero status of 7" in ended["error"]["message"]
        query = {
            "resourceNames": ["projects/my-project"],
            "filter": f'resource.labels.job_id="{name.split("/")[-1]}" '
            'AND resource.labels.task_name="workerpool0-0"',
        }
        entries = running.call("/v2/entries:list", query)["entries"]
        lines = [(entry["severity"], entry["jsonPayload"]["message"]) for entry in entries]
        assert sorted(lines) == [("ERROR", "to stderr"), ("INFO", "to stdout")]
        running.call("/upload/storage/v1/b/my-bucket/o?uploadType=media&name=a/b", "kept")
        assert running.call("/storage/v1/b/my-bucket")["location"] == "EUROPE-WEST4"
        assert f"buckets are folders in {tmp_path}/kept\n" in running.end(signal.SIGTERM)
    assert (tmp_path / "kept/my-bucket/a/b").read_text() == '"kept"'


def test_the_debug_log_has_the_requests(emulator):
    with emulator("--faults=lost@create", before=("--log-level=debug",)) as running:
        running.call(f"{JOBS}?pageSize=2")
        with pytest.raises(requests.ConnectionError):
            running.call(JOBS, job("true"))
        err = running.end(signal.SIGTERM)
    assert f"distlaunch: GET {JOBS}?pageSize=2 200\n" in err
    assert f"distlaunch: POST {JOBS} without an answer\n" in err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ["--faults", "los@create"],
            2,
            "--faults: 'los@create': no such fault; did you mean 'lost'? "
            "(see 'distlaunch emulator --help')",
        ),
        (
            ["--port", "70000"],
            2,
            "invalid value for '--port': 70000 is not in the range 0<=x<=65535 "
            "(see 'distlaunch emulator --help')",
        ),
        (
            ["--project-dir", "nowhere"],
            2,
            "--project-dir nowhere: no such folder; give the one with the job's program",
        ),
        (
            ["--storage", "/dev/null/x"],
            1,
            "--storage /dev/null/x: cannot be a folder (not a directory); choose another",
        ),
    ],
)
def test_wrong_options_are_errors_of_one_line(options, code, message, capfd):
    assert main([*EMULATOR, *options]) == code
    assert capfd.readouterr() == ("", f"distlaunch: error: {message}\n")


def test_a_port_that_is_taken_is_an_error(capfd):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main([*EMULATOR, f"--port={port}"]) == 1
    assert capfd.readouterr().err.startswith(
        f"distlaunch: error: port {port} of 127.0.0.1 is not available (address already in use)"
    )


def test_help_explains_faults(cli):
    text = cli("emulator", "--help").stdout
    for word in ("lost", "reset", "quota", "slow-states", "seed"):
        assert f"\n    {word}" in text
