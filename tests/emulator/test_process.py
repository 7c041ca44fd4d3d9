"""Replicas as processes: their environment, their output, and that none is left."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import zipfile
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from distlaunch.emulator.process import ProcessBackend, ReplicaProcess, _project_main

from .jobs import TIMEOUT, custom_job, jobs_on, pool

ENDPOINT = "http://127.0.0.1:9"
PYTHON = sys.executable
REPORT = """\
import json, os, sys
print(json.dumps({"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ)}), flush=True)
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "trainer").mkdir(parents=True)
    for program in ("report.py", "trainer/task.py"):
        (folder / program).write_text(REPORT)
    return folder


@pytest.fixture
def jobs(project, tmp_path):
    with jobs_on(ProcessBackend(project, tmp_path / "storage", ENDPOINT), grace=0.5) as jobs:
        yield jobs


def python(code, **more):
    return pool(PYTHON, "-c", code, **more)


def report_of(jobs, name):
    """Return what REPORT printed."""
    [line] = jobs.texts(name)
    return json.loads(line)


def test_a_replica_gets_the_addresses_of_all_and_the_job_folder(jobs, project, tmp_path):
    sleeper = pool("sleep", "600")  # stopped as the chief ends
    env = [{"name": "COLOUR", "value": "green"}]
    chief = python(REPORT, args=["--epochs=2"], env=env)
    output = {"outputUriPrefix": "gs://bucket/job"}
    pools = (chief, sleeper | {"replicaCount": "2"}, {}, sleeper)
    name, _ = jobs.run(custom_job(*pools, baseOutputDirectory=output))
    report = report_of(jobs, name)
    assert (report["argv"], report["cwd"]) == (["-c", "--epochs=2"], str(project))
    expected = {
        "COLOUR": "green",
        "AIP_MODEL_DIR": f"{tmp_path}/storage/bucket/job/model/",
        "CLOUD_ML_JOB_ID": name.rpartition("/")[2],
        "CLOUD_ML_PROJECT_ID": name.split("/")[1],
        "STORAGE_EMULATOR_HOST": ENDPOINT,
    }
    assert {key: report["env"][key] for key in expected} == expected
    assert report["env"]["PATH"].startswith(str(Path(PYTHON).parent) + os.pathsep)
    cluster = json.loads(report["env"]["CLUSTER_SPEC"])["cluster"]
    counts = {pool: len(hosts) for pool, hosts in cluster.items()}
    assert counts == {"workerpool0": 1, "workerpool1": 2, "workerpool3": 1}
    config = json.loads(report["env"]["TF_CONFIG"])
    assert config["cluster"] == {"chief": cluster["workerpool0"], "worker": cluster["workerpool1"]}


@pytest.mark.parametrize(
    ("job_file", "program"), [("module: report", "report.py"), (None, "trainer/task.py")]
)
def test_the_default_command_is_the_project_s_module_without_variables_of_other_jobs(
    jobs, project, monkeypatch, job_file, program
):
    if job_file:
        (project / "distlaunch.yaml").write_text(job_file)
    for variable in ("TF_CONFIG", "AIP_MODEL_DIR", "CLOUD_ML_JOB_ID"):
        monkeypatch.setenv(variable, "another job's")
    name, _ = jobs.run(custom_job(pool(args=["--epochs=1"])))
    report = report_of(jobs, name)
    assert report["argv"] == [str(project / program), "--epochs=1"]
    assert not {"TF_CONFIG", "AIP_MODEL_DIR"} & report["env"].keys()
    assert report["env"]["CLOUD_ML_JOB_ID"] == name.rpartition("/")[2]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("script: train.py", ["train.py"]),
        (
            "{script_module: trainer.task, trainer_options: [--same-random]}",
            ["--same-random", "-m", "trainer.task"],
        ),
    ],
)
def test_the_default_command_of_a_script_runs_it_under_fit(project, line, words):
    (project / "distlaunch.yaml").write_text(line)
    assert _project_main(project) == ("distlaunch_trainer.fit", *words)


def test_a_job_that_expects_gpus_runs_on_cpus_with_one_warning(jobs):
    chief = pool(env=[{"name": "DISTLAUNCH_EXPECTED_GPUS", "value": "4"}])
    name, _ = jobs.run(custom_job(chief, {**chief, "replicaCount": 2}))
    assert report_of(jobs, name)["env"]["DISTLAUNCH_EXPECTED_GPUS"] == "0"
    assert [text for text in jobs.texts(name, "service") if "DISTLAUNCH_EXPECTED_GPUS" in text] == [
        "The emulator has no GPUs: DISTLAUNCH_EXPECTED_GPUS is 0 in all replicas, which use CPUs."
    ]


def test_lines_of_stdout_have_severity_info_and_those_of_stderr_error(jobs):
    program = r"printf 'first\nsecond\r\nthird\rfourth \377'; printf 'Fehler: ☃\n\nend' >&2; exit 7"
    name, job = jobs.run(custom_job(pool("sh", "-c", program)))
    lines = jobs.lines(name)
    output = [text for severity, text in lines if severity == "INFO"]
    assert output == ["first", "second", "third", "fourth \N{REPLACEMENT CHARACTER}"]
    errors = [text for severity, text in lines if severity == "ERROR"]
    assert errors == ["Fehler: \N{SNOWMAN}", "", "end"]
    assert job["error"]["message"].split("\n")[1:4] == errors


def test_a_command_that_cannot_be_started_is_a_start_error(jobs):
    name, job = jobs.run(custom_job(pool("no-such-program")))
    line = "exec: 'no-such-program': No such file or directory"
    assert jobs.texts(name) == [line]
    assert "status of 128. Termination reason: StartError." in job["error"]["message"]


def test_a_job_that_cannot_be_prepared_fails_with_the_reason(jobs, project):
    output = {"outputUriPrefix": "gs://bucket/../job"}
    _, job = jobs.run(custom_job(pool(), baseOutputDirectory=output))
    assert job["error"]["message"] == "gs://bucket/../job: not a path in a bucket: '../job'"
    (project / "distlaunch.yaml").write_text("module: [no name")
    _, job = jobs.run(custom_job(pool()))
    assert "distlaunch.yaml:1:17: not YAML: " in job["error"]["message"]


STUBBORN = """\
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM", flush=True))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True, stdout=subprocess.DEVNULL)
print(os.getpid(), child.pid, flush=True)
while "leave" not in sys.argv: time.sleep(0.1)
"""


def test_a_cancelled_job_gets_sigterm_and_later_sigkill_with_all_its_processes(jobs):
    name = jobs.start(custom_job(python(STUBBORN)))
    jobs.wait_until(lambda: jobs.texts(name))
    jobs.runner.cancel(name)
    assert jobs.wait(name)["state"] == "JOB_STATE_CANCELLED"
    pids, *more = jobs.texts(name)
    assert more == ["SIGTERM"]
    assert not any(psutil.pid_exists(int(pid)) for pid in pids.split())


def test_processes_that_a_program_leaves_are_killed(jobs):
    name, job = jobs.run(custom_job(python(STUBBORN, args=["leave"])))
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    [pids] = jobs.texts(name)
    assert not any(psutil.pid_exists(int(pid)) for pid in pids.split())


def test_nothing_outlives_an_emulator_that_is_killed(emulator):
    server = emulator()
    server.create(custom_job(python(STUBBORN), python(STUBBORN)))
    processes = []
    end = time.monotonic() + TIMEOUT
    while len(processes) < 6:  # of each replica a supervisor, the program and its child
        processes = psutil.Process(server.process.pid).children(recursive=True)
        assert time.monotonic() < end
    server.process.kill()
    while any(map(is_running, processes)):
        assert time.monotonic() < end


def is_running(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_nothing_is_written_to_a_pipe_while_it_is_closed(tmp_path):
    replica = ReplicaProcess(["true"], tmp_path, os.environ, print, print)
    stdin, is_closed = replica._supervisor.stdin, threading.Event()
    write_for_a_second = Mock(side_effect=lambda _: is_closed.wait(1))
    replica._supervisor.stdin = Mock(write=write_for_a_second, close=is_closed.set)
    replica.stop(kill=False)
    assert not is_closed.is_set()
    replica.wait()
    stdin.close()


@pytest.mark.slow
def test_python_packages_are_installed_for_the_replica_alone(jobs, tmp_path):
    name = "packed-1-py3-none-any.whl"
    (tmp_path / "storage/bucket").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "storage/bucket" / name, "w") as wheel:
        wheel.writestr("packed.py", "import sys; print('packed', sys.argv[1:])")
        wheel.writestr("packed-1.dist-info/METADATA", "Name: packed\nVersion: 1\n")
        wheel.writestr("packed-1.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        wheel.writestr("packed-1.dist-info/RECORD", "packed.py,,\n")
    package = {"packageUris": [f"gs://bucket/{name}"], "pythonModule": "packed", "args": ["-v"]}
    name, _ = jobs.run(custom_job({"pythonPackageSpec": package}))
    assert jobs.texts(name)[-1] == "packed ['-v']"
