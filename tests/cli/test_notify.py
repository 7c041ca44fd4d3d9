"""`--notify`: a command or a web hook at the end of a run or job."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from distlaunch import notify

from ..engines.vertex.servers import Reply, in_turn  # noqa: TID252 - tests are no package
from .cloud import Cloud

COMMAND = (
    'cat > received; echo "$DISTLAUNCH_JOB $DISTLAUNCH_STATE $DISTLAUNCH_EXIT_CODE" >> received'
)


def local(run, target: str, program: str):
    return run("local", "--workers", 1, "--job-dir", "job", "--notify", target, "--", program)


@pytest.mark.parametrize(
    ("program", "state", "code"), [("true", "SUCCEEDED", 0), ("false", "FAILED", 1)]
)
def test_a_command_gets_variables_and_a_line(run, tmp_path, program, state, code):
    done = local(run, COMMAND, program)
    assert done.code == code
    line, variables = (tmp_path / "received").read_text().splitlines()
    assert line.startswith(f"job: {state} after ")
    assert variables == f"job {state} {code}"


def test_a_web_hook_gets_json_and_its_url_is_not_recorded(run, serve, tmp_path):
    server = serve(in_turn(Reply()))
    assert local(run, f"{server.url}/services/s3cret", "true").code == 0
    (request,) = server.requests
    content = request.body
    assert request.headers["content-type"] == "application/json"
    assert content.pop("text").startswith("job: SUCCEEDED after ")
    assert content.pop("duration") >= 0
    assert content.pop("job_dir").endswith("job")
    assert content == {"job": "job", "state": "SUCCEEDED", "exit_code": 0}
    assert "s3cret" not in (tmp_path / "job/run.json").read_text()


def test_a_notification_that_fails_is_a_warning_without_the_url(run, serve):
    for status in (302, 404):
        server = serve(in_turn(Reply(status, headers={"Location": "/login"})))
        url = f"{server.url}/services/s3cret"
        done = local(run, url, "true")
        assert done.code == 0
        assert f"warning: --notify: HTTP {status} from 127.0.0.1\n" in done.err
    server.close()
    closed = local(run, url, "true")
    assert closed.code == 0
    assert "warning: --notify: 127.0.0.1: " in closed.err
    assert "s3cret" not in done.err + closed.err
    failed = local(run, "exit 4", "true")
    assert failed.code == 0
    assert "warning: --notify: the command failed with exit code 4\n" in failed.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_is_cancelled(tmp_path, number):
    words = ["local", "--workers", "1", "--notify", COMMAND, "--", "sh", "-c", "echo up; sleep 60"]
    command = [sys.executable, "-m", "distlaunch", *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        watchdog = threading.Timer(60, process.kill)  # readline() would wait for ever
        watchdog.start()
        assert "up" in process.stdout.readline()
        watchdog.cancel()
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    received = (tmp_path / "received").read_text().splitlines()[1]
    assert received.endswith(f" CANCELLED {128 + number}")
    [record] = tmp_path.glob(".distlaunch/local/*/run.json")
    assert json.loads(record.read_text())["state"] == "CANCELLED"


def test_the_end_of_a_followed_job(run, tmp_path):
    with Cloud(tmp_path) as cloud:
        job = cloud.launch("raise SystemExit(7)", "digits-1")
        words = ("logs", job["name"], "--notify", COMMAND, *cloud.options())
        assert run(*words).code == 2
        assert run(*words, "--follow").code == 3
        received = tmp_path / "received"
        assert received.read_text().splitlines()[1] == "digits-1 FAILED 3"
        again = ("resubmit", job["name"], "--notify", COMMAND, *cloud.options())
        assert run(*again, "--detach").code == 2
        assert run(*again).code == 3
        name, state, _ = received.read_text().splitlines()[1].split()
        assert (name != "digits-1", state) == (True, "FAILED")


def notify_within(monkeypatch, target):
    """Notify with a limit of half a second, and return the problems."""
    monkeypatch.setattr(notify, "TIMEOUT", 0.5)
    problems = []
    with notify.notify_at_end(
        target, notify.Ending("job"), lambda *problem: problems.append(problem)
    ):
        pass
    return problems


def test_an_answer_that_never_ends_is_given_up(monkeypatch):
    class Drip(BaseHTTPRequestHandler):
        def do_POST(self):
            with suppress(OSError):
                while not ended.wait(0.1):
                    self.wfile.write(b"H")

        def log_message(self, *_):
            pass

    ended = threading.Event()
    with HTTPServer(("127.0.0.1", 0), Drip) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        problems = notify_within(monkeypatch, f"http://127.0.0.1:{server.server_port}/")
        ended.set()
        server.shutdown()
        thread.join()
    assert problems == [("--notify: 127.0.0.1: no answer within 0.5 s", "warning")]


def test_a_command_that_hangs_is_killed_with_what_it_started(monkeypatch, tmp_path):
    pid = tmp_path / "pid"
    problems = notify_within(monkeypatch, f"sleep 600 & echo $! > {pid}; wait")
    assert problems == [("--notify: the command did not end within 0.5 s", "warning")]
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    until = time.monotonic() + 60
    while state.exists() and ") Z " not in state.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
