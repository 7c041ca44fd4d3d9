"""Replicas as processes: what they are given, what is heard of them, and that none is left."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from distlaunch.emulator.run.process import ProcessMachines

from .jobs import custom_job, jobs_on, pool

NOWHERE = "http://127.0.0.1:9"
PYTHON = sys.executable
TELL = """\
import json, os, sys
print(json.dumps({"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ)}))
"""
PATIENCE = 30.0


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "tell.py").write_text(TELL)
    (folder / "distlaunch.yaml").write_text("name: digits\nmodule: tell\n")
    return folder


@pytest.fixture
def jobs(project):
    with jobs_on(ProcessMachines(project, NOWHERE), grace=0.5) as jobs:
        yield jobs


def code(text):
    return [PYTHON, "-c", textwrap.dedent(text)]


def told_by(jobs, name, task="workerpool0-0"):
    """Return what TELL told."""
    (line,) = [text for text in jobs.texts(name, task) if text.startswith("{")]
    return json.loads(line)


def wait_until_gone(pid):
    until = time.monotonic() + PATIENCE
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_cluster_finds_its_addresses_and_its_job_folder(jobs, project):
    whole = custom_job(
        pool(*code(TELL), args=["--epochs=2"], env=[{"name": "COLOUR", "value": "green"}]),
        # The chief's end stops the others, whatever they do.
        pool(*code(TELL + "import time; sys.stdout.flush(); time.sleep(600)"), count=2),
        {},
        pool(*code(TELL + "import time; sys.stdout.flush(); time.sleep(600)")),
        baseOutputDirectory={"outputUriPrefix": "gs://bucket/job"},
    )
    whole["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["command"] = code(
        TELL + "sys.stdout.flush(); import pathlib, time\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)"
    )
    name = jobs.begin(whole)
    tasks = ["workerpool0-0", "workerpool1-0", "workerpool1-1", "workerpool3-0"]
    for task in tasks:
        jobs.wait_until(name, lambda _, task=task: jobs.texts(name, task))
    (project / "go").touch()
    assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"

    told = {task: told_by(jobs, name, task) for task in tasks}
    assert all(each["cwd"] == str(project) for each in told.values())
    chief = told["workerpool0-0"]
    assert chief["argv"] == ["-c", "--epochs=2"]
    assert chief["env"]["COLOUR"] == "green"
    assert chief["env"]["AIP_MODEL_DIR"] == "gs://bucket/job/model/"
    assert chief["env"]["CLOUD_ML_JOB_ID"] == name.rpartition("/")[2]
    assert chief["env"]["CLOUD_ML_PROJECT_ID"] == name.split("/")[1]
    assert chief["env"]["STORAGE_EMULATOR_HOST"] == NOWHERE
    assert "CLOUD_ML_TRIAL_ID" not in chief["env"]
    specs = {task: json.loads(each["env"]["CLUSTER_SPEC"]) for task, each in told.items()}
    places = specs["workerpool0-0"]["cluster"]
    assert {pool: len(hosts) for pool, hosts in places.items()} == {
        "workerpool0": 1,
        "workerpool1": 2,
        "workerpool3": 1,
    }
    assert all(each["cluster"] == places for each in specs.values())
    assert specs["workerpool1-1"]["task"] == {"type": "workerpool1", "index": 1}
    config = json.loads(told["workerpool3-0"]["env"]["TF_CONFIG"])
    assert config["cluster"] == {"chief": places["workerpool0"], "worker": places["workerpool1"]}
    assert config["task"]["type"] == "evaluator"


def test_without_a_command_it_is_the_project_s_module_and_alone_there_is_no_tf_config(
    jobs, project, monkeypatch
):
    for name in ("TF_CONFIG", "AIP_MODEL_DIR", "CLOUD_ML_JOB_ID"):
        monkeypatch.setenv(name, "another job's")
    name, job = jobs.run(custom_job(pool(args=["--epochs=1"])))
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    told = told_by(jobs, name)
    assert told["argv"] == [str(project / "tell.py"), "--epochs=1"]
    assert "TF_CONFIG" not in told["env"]
    assert "AIP_MODEL_DIR" not in told["env"]
    assert told["env"]["CLOUD_ML_JOB_ID"] == name.rpartition("/")[2]


def test_a_job_that_expects_gpus_runs_on_cpus_with_one_warning(jobs):
    expected = [{"name": "DISTLAUNCH_EXPECTED_GPUS", "value": "4"}]
    chief = pool(env=expected)
    name, job = jobs.run(custom_job(chief, {**chief, "replicaCount": 2}))
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    assert told_by(jobs, name)["env"]["DISTLAUNCH_EXPECTED_GPUS"] == "0"
    assert [text for text in jobs.texts(name, "service") if "DISTLAUNCH_EXPECTED_GPUS" in text] == [
        "The emulator has no GPUs: DISTLAUNCH_EXPECTED_GPUS is 0 in all replicas, which use CPUs."
    ]


def test_the_module_is_trainer_task_where_no_job_file_says_otherwise(jobs, project):
    (project / "distlaunch.yaml").write_text("module: [no name")
    (project / "trainer").mkdir()
    (project / "trainer" / "task.py").write_text("print('trained')")
    name, _ = jobs.run(custom_job(pool()))
    assert jobs.texts(name, "workerpool0-0") == ["trained"]


def test_stdout_is_information_and_stderr_an_error_line_by_line(jobs):
    name, job = jobs.run(
        custom_job(
            pool(
                *code(r"""
                import os
                os.write(1, b"first\nsecond\r\nthird\rfourth \xff")
                os.write(2, "Fehler: \N{SNOWMAN}\n\nend".encode())
                raise SystemExit(7)
                """)
            )
        )
    )
    out = [(severity, text) for _, severity, text in jobs.lines(name, "workerpool0-0")]
    assert [text for severity, text in out if severity == "INFO"] == [
        *("first", "second", "third"),
        "fourth \N{REPLACEMENT CHARACTER}",
    ]
    errors = ["Fehler: \N{SNOWMAN}", "", "end"]
    assert [text for severity, text in out if severity == "ERROR"] == errors
    assert job["state"] == "JOB_STATE_FAILED"
    quoted = job["error"]["message"].split("\n")
    assert "exited with a non-zero status of 7." in quoted[0]
    assert quoted[1:4] == errors


@pytest.mark.parametrize(
    ("command", "said"),
    [(["no-such-program"], "No such file or directory"), (["/etc/passwd"], "Permission denied")],
)
def test_what_cannot_be_started_is_a_start_error(jobs, command, said):
    name, job = jobs.run(custom_job(pool(*command)))
    assert jobs.texts(name, "workerpool0-0") == [f"exec: {command[0]!r}: {said}"]
    assert "status of 128. Termination reason: StartError." in job["error"]["message"]


def test_a_project_that_is_not_there_is_told(tmp_path):
    with jobs_on(ProcessMachines(tmp_path / "gone", NOWHERE)) as jobs:
        _, job = jobs.run(custom_job(pool()))
    assert job["error"]["message"] == (
        f"{tmp_path / 'gone'}: no such folder; give the emulator --project-dir"
    )


def test_a_replica_that_is_killed_is_restarted_at_the_same_address(jobs, project):
    name, job = jobs.run(
        custom_job(
            pool(
                *code("""
                import os, pathlib, signal
                print(os.environ["CLUSTER_SPEC"], flush=True)
                if not pathlib.Path("again").exists():
                    pathlib.Path("again").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                """)
            )
        )
    )
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    first, second = jobs.texts(name, "workerpool0-0")
    assert first == second
    assert "Restarting workerpool0-0, which ended with 137." in jobs.texts(name, "service")


STUBBORN = """\
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("asked to stop", flush=True))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True, stdout=subprocess.DEVNULL)
print(os.getpid(), child.pid, flush=True)
while True: time.sleep(0.1)
"""


def test_a_cancelled_job_is_asked_to_stop_and_then_killed_with_all_that_it_started(jobs):
    name = jobs.begin(custom_job(pool(PYTHON, "-c", STUBBORN)))
    jobs.wait_until(name, lambda _: jobs.texts(name, "workerpool0-0"))
    pids = [int(word) for word in jobs.texts(name, "workerpool0-0")[0].split()]
    jobs.lives.cancel(name)
    assert jobs.wait(name)["state"] == "JOB_STATE_CANCELLED"
    assert jobs.texts(name, "workerpool0-0")[1:] == ["asked to stop"]
    assert not any(map(psutil.pid_exists, pids))


def test_what_a_program_leaves_behind_ends_with_it(jobs):
    name, job = jobs.run(
        custom_job(
            pool(
                *code("""
                import subprocess, sys
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                         start_new_session=True)
                print(child.pid)
                """)
            )
        )
    )
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    (pid,) = map(int, jobs.texts(name, "workerpool0-0"))
    assert not psutil.pid_exists(pid)


EMULATOR = """\
import sys, time
from pathlib import Path
from distlaunch.emulator.run.life import Lives, Pace
from distlaunch.emulator.logs import Logs
from distlaunch.emulator.run.process import ProcessMachines
from distlaunch.emulator.store import Store
store, logs = Store(), Logs()
lives = Lives(store, ProcessMachines(Path.cwd(), "http://127.0.0.1:9"), logs, pace=Pace(0, 0))
pool = {"containerSpec": {"imageUri": "image", "command": [sys.executable, "-c", sys.argv[1]]}}
job = store.create("p", "r", "customJobs", {"jobSpec": {"workerPoolSpecs": [pool, pool]}})
lives.begin(job["name"])
told = set()
while len(told) < 2:
    entries = list(logs.scan())
    told = {each.text for each in entries if each.task_name != "service"}
    time.sleep(0.01)
print(*told, flush=True)
time.sleep(600)
"""


def test_nothing_outlives_an_emulator_that_is_killed(tmp_path):
    with subprocess.Popen(
        [PYTHON, "-c", EMULATOR, STUBBORN], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as emulator:
        pids = [int(word) for word in emulator.stdout.readline().split()]
        assert len(pids) == 4
        emulator.send_signal(signal.SIGKILL)
    for pid in pids:
        wait_until_gone(pid)


def a_package():
    """Return a wheel of one module, as bytes."""
    files = {
        "packed.py": "import sys; print('packed', sys.argv[1:])",
        "pack-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: pack\nVersion: 1\n",
        "pack-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "pack-1.dist-info/RECORD": "packed.py,,\n",
    }
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return written.getvalue()


@contextmanager
def serving(objects):
    """Serve objects by the path by which Cloud Storage has them."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            content = objects.get(self.path)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.slow
def test_python_packages_are_installed_for_the_replica_alone(project):
    package = {
        "executorImageUri": "executor",
        "packageUris": ["gs://bucket/packs/pack-1-py3-none-any.whl"],
        "pythonModule": "packed",
        "args": ["--epochs=1"],
    }
    job = custom_job({"pythonPackageSpec": package})
    with (
        serving(
            {"/storage/v1/b/bucket/o/packs%2Fpack-1-py3-none-any.whl?alt=media": a_package()}
        ) as url,
        jobs_on(ProcessMachines(project, url)) as jobs,
    ):
        name, ended = jobs.run(job)
        assert ended["state"] == "JOB_STATE_SUCCEEDED", jobs.texts(name)
        assert jobs.texts(name, "workerpool0-0")[-1] == "packed ['--epochs=1']"
        package["packageUris"] = ["gs://bucket/other.tar.gz"]
        name, ended = jobs.run(job)
        assert ended["state"] == "JOB_STATE_FAILED"
        assert any("other.tar.gz" in text for text in jobs.texts(name, "workerpool0-0"))


def test_scratch_folders_go_with_their_jobs(jobs):
    name, _ = jobs.run(
        custom_job(
            pool(*code("import os; print(os.environ['CURL_CA_BUNDLE'], os.environ['PATH'])"))
        )
    )
    bundle, _, path = jobs.texts(name, "workerpool0-0")[0].partition(" ")
    assert Path(bundle).is_file()
    assert path.startswith(str(Path(PYTHON).parent) + os.pathsep)
