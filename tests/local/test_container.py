"""A job's image as a cluster of containers, with a real engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

JOB_FILE = """\
name: digits
module: trainer
args: [--from-file]
env: {{GREETING: hello}}
image: {{base: "{base}"}}
cluster:
  chief: {{machine: n1-standard-4}}
  workers: {{machine: n1-standard-4, count: 1}}
"""
TRAINER = """\
import json, os, pathlib, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
print(os.environ["GREETING"], *sys.argv[1:], os.getcwd(), flush=True)
pathlib.Path(os.environ["AIP_MODEL_DIR"].rstrip("/") + "-" + task).write_text("written")
pathlib.Path(os.environ["DISTLAUNCH_EVENTS"]).write_text('{"event": "ready"}\\n')
if "--sleep" in sys.argv and os.environ["DISTLAUNCH_RESTARTS"] == "0":
    time.sleep(600)
if "--fail" in sys.argv and task == "worker":
    sys.exit(7)
if task == "chief":
    time.sleep(1)
"""
PATIENCE = 120


@pytest.fixture(scope="module")
def project(engine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("contained")
    (folder / "distlaunch.yaml").write_text(JOB_FILE.format(base=engine.base))
    (folder / "trainer.py").write_text(TRAINER)
    return folder


@pytest.fixture
def start(engine, project):
    def launch(*words):
        return subprocess.Popen(
            [sys.executable, "-m", "distlaunch", "local", "--docker", *words],
            cwd=project,
            env=os.environ | engine.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return launch


@pytest.fixture
def run(start, engine):
    """Run it to its end, at which no container is left."""

    def run_to_end(*words):
        launcher = start(*words)
        out, err = launcher.communicate(timeout=PATIENCE)
        assert containers(engine) == []
        return launcher.returncode, out, err

    return run_to_end


def containers(engine):
    shown = engine.docker("ps", "--all", "--filter=name=distlaunch-2", "--format={{.Names}}")
    return shown.stdout.split()


def test_each_task_is_a_container_that_is_killed_and_restarted_like_a_process(project, run):
    code, out, err = run("--kill=worker:0@0.5s", "--restarts=1", "--", "--sleep")
    assert code == 0, err
    assert "sending SIGKILL to worker:0" in err
    assert "restarting all tasks (1 of 1)" in err
    for task in ("chief   ", "worker:0"):
        assert f"{task} | hello --from-file --sleep /app\n" in out
    written = {path.name for path in project.glob(".distlaunch/local/*/model-*")}
    assert written == {"model-chief", "model-worker"}


def test_the_exit_code_is_that_of_the_first_task_that_fails(run):
    code, _, err = run("--", "--fail")
    assert code == 7
    assert "worker:0 failed with exit code 7" in err


def test_a_frozen_task_is_a_paused_container_and_ctrl_c_twice_leaves_none(
    start, engine, eventually
):
    process = start("--freeze=worker:0@0s", "--", "--sleep")
    for line in process.stderr:
        if "worker:0 is frozen" in line:
            break
    [worker] = [name for name in containers(engine) if name.endswith("worker-0")]
    inspect = ("inspect", "--format={{.State.Status}}", worker)
    eventually(lambda: engine.docker(*inspect).stdout == "paused\n")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert containers(engine) == []


def test_no_container_is_left_when_the_launcher_is_killed(start, engine, eventually):
    process = start("--", "--sleep")
    greetings = (line for line in process.stdout if "hello" in line)
    next(greetings)
    next(greetings)  # of the other task, whose container may start much later
    assert len(containers(engine)) == 2
    process.kill()
    process.communicate(timeout=PATIENCE)
    eventually(lambda: not containers(engine))
