"""`distlaunch emulator` as its user meets it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS = "/v1/projects/my-project/locations/us-central1/customJobs"


class Running:
    """An emulator that runs, and its address."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.first = process.stdout.readline()
        self.url = self.first.strip()

    def call(
        self, path: str, body: object = None, kind: str = "application/json", **headers: str
    ) -> dict:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", content)  # noqa: S310
        request.headers = {"Content-Type": kind, **headers}
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.load(answer)

    def end(self, number: int) -> str:
        """Send a signal and return what stderr said; stdout has said no more than the address."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        assert out == ""
        return err


@pytest.fixture
def emulator(tmp_path):
    """Start `distlaunch emulator` on a port that is free."""

    @contextmanager
    def start(*words: str) -> Iterator[Running]:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distlaunch",
                "emulator",
                "--port=0",
                "--run-with=process",
                *words,
            ],
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


def job(script: str) -> dict:
    container = {"imageUri": "host/image:1", "command": ["sh", "-c", script]}
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": container,
    }
    return {"displayName": "digits", "jobSpec": {"workerPoolSpecs": [pool]}}


def wait_until(is_so) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_runs_jobs_and_ends_leaving_nothing(emulator, tmp_path, number):
    with emulator() as running:
        assert running.first == f"http://127.0.0.1:{running.first.strip().rpartition(':')[2]}\n"
        script = f"echo $$ > {tmp_path}/pid; sleep 300 & echo $! >> {tmp_path}/pid; wait"
        name = running.call(JOBS, job(script))["name"]
        pid = tmp_path / "pid"
        wait_until(lambda: pid.exists() and len(pid.read_text().split()) == 2)
        wait_until(lambda: running.call(f"/v1/{name}")["state"] == "JOB_STATE_RUNNING")
        said = running.end(number)
        assert running.process.returncode == 0
    assert f"to use it: export DISTLAUNCH_ENDPOINT={running.url}\n" in said
    assert "distlaunch: ending, and the jobs with it\n" in said
    assert not any(map(psutil.pid_exists, map(int, pid.read_text().split())))
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]


def test_a_web_page_cannot_run_commands_through_the_emulator(emulator, tmp_path):
    ran = tmp_path / "ran"
    attack = job(f"touch {ran}")
    with emulator() as running:
        for kind, headers in (
            ("text/plain", {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}),
            ("text/plain", {}),
            ("application/json", {"Origin": "https://evil.example"}),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                running.call(JOBS, attack, kind, **headers)
            refused.value.close()
            assert refused.value.code == (403 if headers else 415)
        assert running.call(JOBS) == {}, "no job was created"
        assert not ran.exists()

        running.call(JOBS, attack)
        wait_until(ran.exists)


def test_a_job_s_end_its_lines_and_its_folder_are_told(emulator, tmp_path):
    with emulator("--storage", "kept", "--region", "europe-west4") as running:
        name = running.call(JOBS, job("echo to stdout; echo to stderr >&2; exit 7"))["name"]
        wait_until(lambda: "error" in running.call(f"/v1/{name}"))
        told = running.call(f"/v1/{name}")
        assert told["state"] == "JOB_STATE_FAILED"
        assert "non-zero status of 7" in told["error"]["message"]
        ask = {
            "resourceNames": ["projects/my-project"],
            "filter": f'resource.type="ml_job" AND resource.labels.job_id="{name.split("/")[-1]}" '
            'AND resource.labels.task_name="workerpool0-0"',
        }
        entries = running.call("/v2/entries:list", ask)["entries"]
        lines = [(entry["severity"], entry["jsonPayload"]["message"]) for entry in entries]
        assert sorted(lines) == [("ERROR", "to stderr"), ("INFO", "to stdout")]
        upload = "/upload/storage/v1/b/my-bucket/o?uploadType=media&name=a/b"
        running.call(upload, "kept")
        assert running.call("/storage/v1/b/my-bucket")["location"] == "EUROPE-WEST4"
        assert f"buckets are folders in {tmp_path}/kept\n" in running.end(signal.SIGTERM)
    assert (tmp_path / "kept/my-bucket/a/b").read_text() == '"kept"'


def test_requests_are_told_when_they_are_asked_for(cli, emulator, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "distlaunch", "--log-level=debug", "emulator", "--port=0",
         "--run-with=process", "--faults=lost@create"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    running = Running(process)
    running.call(f"{JOBS}?pageSize=2")
    with pytest.raises(OSError, match="reset"):
        running.call(JOBS, job("true"))
    said = running.end(signal.SIGTERM)
    assert f"distlaunch: GET {JOBS}?pageSize=2 200\n" in said
    assert f"distlaunch: POST {JOBS} without an answer\n" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
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
            ["--run-with", "podman"],
            2,
            "invalid value for '--run-with': 'podman' is not one of 'docker', 'process' "
            "(see 'distlaunch emulator --help')",
        ),
        (
            ["--run-with=process", "--port=0", "--project-dir", "nowhere"],
            2,
            "--project-dir nowhere: no such folder; give the one with the job's program",
        ),
        (
            ["--run-with=process", "--port=0", "--storage", "/dev/null/x"],
            1,
            "--storage /dev/null/x: cannot be a folder (not a directory); choose another",
        ),
    ],
)
def test_what_cannot_be_is_one_line(cli, words, code, said):
    done = cli("emulator", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"distlaunch: error: {said}\n"


def test_a_port_that_is_taken_is_one_line(cli, tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = cli("emulator", "--run-with=process", f"--port={port}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"distlaunch: error: port {port} of 127.0.0.1 cannot be had")
    assert list(tmp_path.iterdir()) == []


def test_help_explains_faults_and_imports_nothing_heavy(cli, checkout):
    done = cli("emulator", "--help")
    assert done.returncode == 0
    for word in ("lost", "reset", "quota", "slow-states", "seed"):
        assert f"\n    {word}" in done.stdout
    code = (
        "import sys; from distlaunch.cli import main; main(['emulator', '--help']); "
        "heavy = {'google.auth', 'google.protobuf', 'docker', 'requests', 'http.server'}; "
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)"
    )
    looked = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert looked.returncode == 0, looked.stderr
