"""Replicas as containers of a real engine, their image from a real registry."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from distlaunch.emulator.run.docker import DockerMachines

from .jobs import custom_job, jobs_on, pool

pytestmark = pytest.mark.slow

TELL = """\
import json, os, socket, sys
names = [host.partition(":")[0] for hosts in json.loads(os.environ["CLUSTER_SPEC"])["cluster"]
         .values() for host in hosts]
told = {"argv": sys.argv, "env": dict(os.environ), "host": socket.gethostname(),
        "peers": {name: socket.gethostbyname(name) for name in names}}
print(json.dumps(told), flush=True)
"""
# A real conversation between replicas, at the addresses that they were told.
MEET = (
    TELL
    + """\
spec = json.loads(os.environ["CLUSTER_SPEC"])
chief, port = spec["cluster"]["workerpool0"][0].split(":")
if spec["task"]["type"] == "workerpool0":
    with socket.create_server(("", int(port))) as server:
        for _ in range(2):
            with server.accept()[0] as peer:
                print("met", peer.recv(100).decode(), flush=True)
    folder = os.environ["AIP_MODEL_DIR"]
    os.makedirs(folder)
    with open(folder + "saved_model.pb", "w") as file:
        file.write("the model")
else:
    while True:
        try:
            with socket.create_connection((chief, int(port)), timeout=5) as connection:
                connection.sendall(socket.gethostname().encode())
            break
        except OSError:
            pass
    print("waiting", file=sys.stderr, flush=True)
    import signal, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    time.sleep(600)
"""
)
PATIENCE = 60.0


@pytest.fixture(scope="module")
def environment(engine):
    """Lead docker's clients to the engine."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in engine.environment.items():
            patch.setenv(name, value)
        yield engine


@pytest.fixture
def storage(tmp_path):
    folder = tmp_path / "storage"
    (folder / "data-bucket").mkdir(parents=True)
    return folder


@pytest.fixture
def jobs(environment, storage):
    with jobs_on(DockerMachines(storage), grace=1.0) as jobs:
        yield jobs


def left_of(engine, *jobs):
    """Return the engine's containers and networks of jobs."""
    left = []
    for kind in ("container", "network"):
        listing = ["container", "ls", "--all"] if kind == "container" else ["network", "ls"]
        for job in jobs:
            mine = f"label=distlaunch-job={job.rpartition('/')[2]}"
            done = engine.docker(*listing, "--quiet", "--filter", mine)
            assert done.returncode == 0, done.stderr
            left += done.stdout.split()
    return left


def python(code, **more):
    return pool("python3", "-c", code, **more)


def told_by(jobs, name, task):
    (line,) = [text for text in jobs.texts(name, task) if text.startswith("{")]
    return json.loads(line)


def test_a_cluster_meets_at_its_addresses_and_writes_to_its_bucket(jobs, engine, storage):
    name, job = jobs.run(
        custom_job(
            python(MEET, image=engine.base, args=["--epochs=2"]),
            python(MEET, image=engine.base, count=2),
            baseOutputDirectory={"outputUriPrefix": "gs://job-bucket/digits/1"},
        )
    )
    assert job["state"] == "JOB_STATE_SUCCEEDED", jobs.texts(name)
    chief = told_by(jobs, name, "workerpool0-0")
    assert chief["argv"] == ["-c", "--epochs=2"]
    assert chief["env"]["AIP_MODEL_DIR"] == "/gcs/job-bucket/digits/1/model/"
    assert chief["env"]["CLOUD_ML_PROJECT_ID"] == name.split("/")[1]
    mark = chief["host"].removeprefix("cmle-training-workerpool0-").removesuffix("-0")
    assert len(bytes.fromhex(mark)) == 5
    workers = [f"cmle-training-workerpool1-{mark}-{index}" for index in (0, 1)]
    assert sorted(chief["peers"]) == [f"cmle-training-workerpool0-{mark}-0", *workers]
    assert len(set(chief["peers"].values())) == 3
    config = json.loads(chief["env"]["TF_CONFIG"])
    assert config["cluster"]["worker"] == [f"{worker}:2222" for worker in workers]
    met = {text for text in jobs.texts(name, "workerpool0-0") if text.startswith("met ")}
    assert met == {f"met {worker}" for worker in workers}
    assert ("workerpool1-0", "ERROR", "waiting") in jobs.lines(name)
    model = storage / "job-bucket/digits/1/model/saved_model.pb"
    assert model.read_text() == "the model"
    assert left_of(engine, name) == []


@pytest.fixture(scope="module")
def own_image(environment):
    """An image with an entrypoint and a command of its own."""
    uri = f"{environment.repository('own')}:1"
    dockerfile = (
        f"FROM {environment.base}\n"
        'ENTRYPOINT ["python3", "-c", "import sys; print(sys.argv[1:])"]\n'
        'CMD ["its", "own"]\n'
    )
    for words in (["build", "--tag", uri, "-"], ["push", uri]):
        done = environment.docker(*words, input=dockerfile if "build" in words else None)
        assert done.returncode == 0, done.stderr
    return uri


def test_a_command_takes_the_entrypoint_s_place_and_args_the_image_s_command(jobs, own_image):
    names = [
        jobs.begin(custom_job(each))
        for each in (
            pool(image=own_image),
            pool(image=own_image, args=["given"]),
            pool("echo", image=own_image),
            pool("echo", image=own_image, args=["given"]),
        )
    ]
    for name in names:
        jobs.wait(name)
    said = [jobs.texts(name, "workerpool0-0") for name in names]
    assert said == [["['its', 'own']"], ["['given']"], [""], ["given"]]


def test_failures_are_told_as_vertex_ai_tells_them(jobs, engine):
    missing = f"{engine.registry}/none/such:1"
    seven, unknown, unpulled = (
        jobs.begin(custom_job(each))
        for each in (
            python("import sys; print('oh', file=sys.stderr); sys.exit(7)", image=engine.base),
            pool("no-such-program", image=engine.base),
            python("", image=missing),
        )
    )
    message = jobs.wait(seven)["error"]["message"]
    assert message.startswith("The replica workerpool0-0 exited with a non-zero status of 7. ")
    assert message.split("\n")[1] == "oh"
    message = jobs.wait(unknown)["error"]["message"]
    assert "status of 128. Termination reason: StartError. \n" in message
    assert '"no-such-program": executable file not found' in message
    job = jobs.wait(unpulled)
    assert job["error"]["message"].startswith(f'Failed to pull image "{missing}": ')
    assert "startTime" not in job
    assert left_of(engine, seven, unknown, unpulled) == []


def test_a_replica_that_is_killed_comes_back_at_its_address(jobs, engine):
    code = TELL + (
        "import pathlib, time\n"
        "again = pathlib.Path('/gcs/data-bucket/again')\n"
        "while not again.exists(): time.sleep(0.05)\n"
    )
    name = jobs.begin(custom_job(python(code, image=engine.base)))
    jobs.wait_until(name, lambda _: jobs.texts(name, "workerpool0-0"))
    host = told_by(jobs, name, "workerpool0-0")["host"]
    assert engine.docker("kill", host).returncode == 0
    jobs.wait_for_line(name, "Restarting workerpool0-0, which ended with 137.")
    touched = python("open('/gcs/data-bucket/again', 'w')", image=engine.base)
    jobs.run(custom_job(touched))
    assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    first, second = map(json.loads, jobs.texts(name, "workerpool0-0"))
    assert first["host"] == second["host"]
    assert first["peers"] == second["peers"]


def test_a_cancelled_job_and_a_trial_leave_nothing(jobs, engine):
    stubborn = "print('here', flush=True); import time; time.sleep(600)"
    name = jobs.begin(custom_job(python(stubborn, image=engine.base)))
    report = (
        "import json, os, sys; json.dump({'loss': 1.5, 'global_step': 3}, "
        "open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w')); "
        "print(sys.argv[1:], os.environ['AIP_MODEL_DIR'])"
    )
    tuned, job = jobs.run(
        {
            "studySpec": {
                "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
                "parameters": [{"parameterId": "x", "discreteValueSpec": {"values": [2]}}],
            },
            "maxTrialCount": 1,
            "parallelTrialCount": 1,
            "trialJobSpec": {
                "workerPoolSpecs": [python(report, image=engine.base)],
                "baseOutputDirectory": {"outputUriPrefix": "gs://data-bucket/tuned"},
            },
        }
    )
    (trial,) = job["trials"]
    assert trial["finalMeasurement"]["metrics"] == [{"metricId": "loss", "value": 1.5}]
    assert jobs.texts(tuned, "workerpool0-0") == ["['--x=2'] /gcs/data-bucket/tuned/1/model/"]

    jobs.wait_until(name, lambda _: jobs.texts(name, "workerpool0-0"))
    jobs.lives.cancel(name)
    assert jobs.wait(name)["state"] == "JOB_STATE_CANCELLED"
    assert left_of(engine, name, tuned) == []


def test_what_containers_write_as_root_is_the_user_s_in_the_end(jobs, engine, storage, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    monkeypatch.setattr(os, "getgid", lambda: 23_456)
    write = "import os; os.umask(0o077); os.mkdir('/gcs/data-bucket/a'); "
    name, _ = jobs.run(
        custom_job(python(write + "open('/gcs/data-bucket/a/b', 'w')", image=engine.base))
    )
    for path in (storage / "data-bucket/a", storage / "data-bucket/a/b"):
        assert (path.stat().st_uid, path.stat().st_gid) == (12_345, 23_456)
    assert left_of(engine, name) == []


EMULATOR = """\
import os, sys, time
from pathlib import Path
from distlaunch.emulator.run.docker import DockerMachines
from distlaunch.emulator.run.life import Lives, Pace
from distlaunch.emulator.logs import Logs
from distlaunch.emulator.store import Store
store, logs = Store(), Logs()
machines = DockerMachines(Path.cwd())
lives = Lives(store, machines, logs, pace=Pace(0, 0))
pool = {"containerSpec": {"imageUri": sys.argv[1], "command": ["sleep", "600"]}}
job = store.create("p", "r", "customJobs", {"jobSpec": {"workerPoolSpecs": [pool, pool]}})
lives.begin(job["name"])
while store.get(job["name"])["state"] != "JOB_STATE_RUNNING":
    time.sleep(0.01)
print(job["name"], machines._guard.pid, flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def an_emulator(engine, folder):
    """Give an emulator of its own with a running job, the job's name and the guard's process."""
    with subprocess.Popen(
        [sys.executable, "-c", EMULATOR, engine.base],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as emulator:
        job, guard = emulator.stdout.readline().split()
        assert len(left_of(engine, job)) == 3
        yield emulator, job, int(guard)


def test_nothing_outlives_an_emulator_that_is_killed(environment, tmp_path):
    with an_emulator(environment, tmp_path) as (emulator, job, _):
        emulator.send_signal(signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while left_of(environment, job):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_what_nobody_could_remove_the_next_emulator_does(environment, tmp_path, storage):
    with an_emulator(environment, tmp_path) as (other, alive, _):
        with an_emulator(environment, tmp_path) as (emulator, job, guard):
            os.kill(guard, signal.SIGKILL)
            emulator.send_signal(signal.SIGKILL)
        assert len(left_of(environment, job)) == 3
        DockerMachines(storage).close()
        assert left_of(environment, job) == []
        assert len(left_of(environment, alive)) == 3, "they are another's"
        other.send_signal(signal.SIGKILL)


def test_no_engine_is_one_line(cli, tmp_path):
    nowhere = os.environ | {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = cli("emulator", "--port=0", "--run-with=docker", env=nowhere)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"distlaunch: error: no container engine can be used at unix://{tmp_path}/none.sock "
        "(no such file or directory); start Docker, set DOCKER_HOST, "
        "or run jobs as processes with --run-with process\n"
    )
