from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from .cloud import Cloud, objects

PROGRAM = """\
import os, sys, time
for number in range(3):
    print("line", number, flush=True)
    time.sleep(0.1)
sys.exit({code} if "workerpool0" in os.environ["CLUSTER_SPEC"].partition('"task"')[2] else 0)
"""


def program(code: int = 0) -> str:
    return PROGRAM.format(code=code)


def test_all_lines_of_a_job(cli, cloud):
    cloud.wait(cloud.launch("digits-1", program()))
    done = cli("logs", "digits-1", *cloud.options)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("chief    | ")] == [
        f"chief    | line {number}" for number in range(3)
    ]
    assert sum(line.startswith("worker:0 | line ") for line in lines) == 3
    assert "vertex   | Job completed successfully." in lines


def test_lines_of_one_task(cli, cloud):
    cloud.wait(cloud.launch("digits-1", program()))
    done = cli("logs", "digits-1", "--task", "worker:0", *cloud.options)
    assert done.stdout == "".join(f"worker:0 | line {number}\n" for number in range(3))
    done = cli("logs", "digits-1", "--task", "worker:1", *cloud.options)
    assert done.returncode == 2
    assert done.stderr == (
        "distlaunch: error: --task worker:1: no such task in this job; "
        "there are: chief, worker:0, vertex\n"
    )


def test_lines_as_json(cli, cloud):
    cloud.wait(cloud.launch("digits-1", program()))
    done = cli("logs", "digits-1", "--task", "chief", "--json", *cloud.options)
    content = objects(done.stdout)
    assert [(each["event"], each["task"], each["text"]) for each in content] == [
        ("line", "chief", f"line {number}") for number in range(3)
    ]
    assert {each["severity"] for each in content} == {"INFO"}
    assert all(each["time"].endswith("Z") for each in content)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "exit_code", "state"), [(0, 0, "SUCCEEDED"), (7, 3, "FAILED")])
def test_following_a_job_to_its_end(cli, tmp_path, code, exit_code, state):
    with Cloud(tmp_path, "503@get,reset@logs,503@logs#3") as cloud:
        cloud.launch("digits-1", program(code))
        done = cli("logs", "digits-1", "--follow", "--json", *cloud.options)
    assert done.returncode == exit_code
    content = objects(done.stdout)
    lines = [(each["task"], each["text"]) for each in content if each["event"] == "line"]
    for task in ("chief", "worker:0"):
        assert sorted(text for who, text in lines if who == task) == ["line 0", "line 1", "line 2"]
    states = [each for each in content if each["event"] == "state"]
    assert states[-1]["state"] == state
    assert ("status of 7" in str(states[-1]["error"])) is bool(code)


@pytest.mark.slow
def test_ctrl_c_leaves_the_job_alone(cloud, tmp_path):
    cloud.launch("digits-1", "import time; print('begun', flush=True); time.sleep(60)")
    words = [sys.executable, "-m", "distlaunch", "logs", "digits-1", "-f", *cloud.options]
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as process:
        while "begun" not in process.stdout.readline():
            pass
        os.kill(process.pid, signal.SIGINT)
        shown, _ = process.communicate()
    assert process.returncode == 130
    assert "the job is still running; cancel it with 'distlaunch cancel digits-1'" in shown
    assert "Traceback" not in shown


def test_a_running_job_is_noted(cli, cloud):
    cloud.launch("digits-1", "import time; time.sleep(60)")
    done = cli("logs", "digits-1", *cloud.options)
    assert done.returncode == 0
    assert "; use --follow to continue\n" in done.stderr


def test_a_part_of_the_log(cli, cloud):
    cloud.wait(cloud.launch("digits-1", program()))
    options = ("logs", "digits-1", "--task", "chief", *cloud.options)
    assert cli(*options, "--tail", "1").stdout == "chief | line 2\n"
    assert cli(*options, "--grep", "[02]$").stdout == "chief | line 0\nchief | line 2\n"
    assert cli(*options, "--since", "1h").stdout.count("line") == 3
    assert cli(*options, "--since", "2999-01-01T00:00").stdout == ""
    for wrong in ("--since=soon", "--grep=(", "--tail=-1"):
        done = cli(*options, wrong)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
