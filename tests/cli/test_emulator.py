"""`distlaunch emulator` as its user meets it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import requests

if TYPE_CHECKING:
    from collections.abc import Callable

JOBS = "/v1/projects/my-project/locations/us-central1/customJobs"
EMULATOR = ("emulator", "--port=0", "--run-with=process")


def call(url: str, body: object = None) -> dict[str, Any]:
    return requests.request("POST" if body else "GET", url, json=body, timeout=60).json()


def end(process: subprocess.Popen[str], number: int) -> str:
    """Send a signal and return what was written to stderr; stdout has only the URL."""
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("", 0)
    return err


@pytest.fixture
def emulator(tmp_path):
    """Start `distlaunch emulator` on a free port; return the process and its URL."""
    with contextlib.ExitStack() as stack:

        def start(*options: str, before: tuple[str, ...] = ()) -> tuple[subprocess.Popen[str], str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "distlaunch", *before, *EMULATOR, *options],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"TMPDIR": str(tmp_path)},
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process, process.stdout.readline().removesuffix("\n")

        yield start


def job(script: str) -> dict[str, Any]:
    container = {"imageUri": "host/image:1", "command": ["sh", "-c", script]}
    pool = {"replicaCount": 1, "containerSpec": container}
    pool["machineSpec"] = {"machineType": "n1-standard-4"}
    return {"displayName": "digits", "jobSpec": {"workerPoolSpecs": [pool]}}


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_prints_its_url_runs_jobs_and_leaves_nothing(emulator, tmp_path):
    process, url = emulator()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}", url)
    script = f"echo $$ > {tmp_path}/pid; sleep 300 & echo $! >> {tmp_path}/pid; wait"
    name = call(url + JOBS, job(script))["name"]
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and len(pid.read_text().split()) == 2)
    wait_until(lambda: call(f"{url}/v1/{name}")["state"] == "JOB_STATE_RUNNING")
    err = end(process, signal.SIGINT)
    assert f"to use it: export DISTLAUNCH_ENDPOINT={url}\n" in err
    assert "distlaunch: shutting down; cancelling running jobs\n" in err
    assert not any(map(psutil.pid_exists, map(int, pid.read_text().split())))
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]


def test_the_options_and_the_log_of_requests(emulator, tmp_path):
    options = ("--storage", "kept", "--region", "europe-west4", "--faults=slow-states")
    process, url = emulator(*options, before=("--log-level=debug",))
    call(f"{url}/upload/storage/v1/b/my-bucket/o?uploadType=media&name=a/b", "kept")
    assert call(f"{url}/storage/v1/b/my-bucket")["location"] == "EUROPE-WEST4"
    call(f"{url}{JOBS}?pageSize=2")
    assert call(url + JOBS, job("true"))["state"] == "JOB_STATE_QUEUED"
    err = end(process, signal.SIGTERM)
    assert f"buckets are folders in {tmp_path}/kept\n" in err
    assert f"distlaunch: GET {JOBS}?pageSize=2 200\n" in err
    assert f"distlaunch: POST {JOBS} 200\n" in err
    assert (tmp_path / "kept/my-bucket/a/b").read_text() == '"kept"'


def test_an_open_one_has_no_token(emulator):
    process, url = emulator("--open")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    assert call(url + JOBS) == {}
    end(process, signal.SIGTERM)


def test_a_storage_that_cannot_be_a_folder_is_an_error(run):
    done = run(*EMULATOR, "--storage=/dev/null/x")
    problem = "--storage /dev/null/x: cannot be a folder (not a directory); cho"
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith(f"distlaunch: error: {problem}")


def test_a_port_that_is_taken_is_an_error(run):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run(*EMULATOR, f"--port={port}")
    text = f"port {port} of 127.0.0.1 is not available (address already in use)"
    assert (done.code, text in done.err) == (1, True)


def test_help_explains_faults(run):
    text = "".join(run("emulator", "--help").out.split())
    for word in ("slow-states", "stockout", "no-start"):
        assert f"{word}[:" in text
