"""Replicas as containers of a real engine, their image from a real registry."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from distlaunch.cli import main
from distlaunch.emulator.run.docker import DockerBackend

from .jobs import custom_job, jobs_on, pool, tuning_job

pytestmark = pytest.mark.slow

ENDPOINT = "http://127.0.0.1:9"  # where nothing listens
# Replicas that meet at the addresses in their environment; each resolves all names at its start.
MEET = """\
import json, os, signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
spec = json.loads(os.environ["CLUSTER_SPEC"])
names = [host.partition(":")[0] for hosts in spec["cluster"].values() for host in hosts]
print(sys.argv[1:], *names, len({socket.gethostbyname(name) for name in names}), flush=True)
if spec["task"]["type"] == "workerpool0":
    with socket.create_server(("", 2222)) as server:
        for _ in range(2):
            print("met", server.accept()[0].recv(100).decode(), flush=True)
    os.makedirs(os.environ["AIP_MODEL_DIR"])
    with open(os.environ["AIP_MODEL_DIR"] + "saved_model.pb", "w") as file:
        file.write(os.environ["AIP_MODEL_DIR"])
else:
    while True:
        try:
            connection = socket.create_connection((names[0], 2222), timeout=1)
            break
        except OSError:
            pass
    connection.sendall(socket.gethostname().encode())
    print("waiting", file=sys.stderr, flush=True)
    time.sleep(600)
"""


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
    with jobs_on(DockerBackend(storage, ENDPOINT), grace=1.0) as jobs:
        yield jobs


def left_of(engine, *jobs):
    """Return the engine's containers and networks of jobs."""
    left = []
    for listing in (["container", "ls", "--all"], ["network", "ls"]):
        for job in jobs:
            label = f"label=distlaunch-job={job.rpartition('/')[2]}"
            done = engine.docker(*listing, "--quiet", "--filter", label)
            assert done.returncode == 0, done.stderr
            left += done.stdout.split()
    return left


def build_image(engine, name, lines):
    uri = f"{engine.repository(name)}:1"
    for words in (["build", "--tag", uri, "-"], ["push", uri]):
        dockerfile = f"FROM {engine.base}\n{lines}" if "build" in words else None
        done = engine.docker(*words, input=dockerfile)
        assert done.returncode == 0, done.stderr
    return uri


def python(code, **more):
    return pool("python3", "-c", code, **more)


def test_a_cluster_meets_at_its_addresses_and_writes_to_its_bucket(jobs, engine, storage):
    name, job = jobs.run(
        custom_job(
            python(MEET, image=engine.base, args=["--epochs=2"]),
            python(MEET, image=engine.base, count=2),
            baseOutputDirectory={"outputUriPrefix": "gs://job-bucket/digits/1"},
        )
    )
    assert job["state"] == "JOB_STATE_SUCCEEDED", jobs.texts(name)
    first, *met = jobs.texts(name, "workerpool0-0")
    args, chief, *workers, addresses = first.split(" ")
    assert (args, addresses) == ("['--epochs=2']", "3")
    mark = chief.removeprefix("cmle-training-workerpool0-").removesuffix("-0")
    assert workers == [f"cmle-training-workerpool1-{mark}-{index}" for index in (0, 1)]
    assert sorted(met) == [f"met {worker}" for worker in workers]
    assert ("workerpool1-0", "ERROR", "waiting") in jobs.lines(name)
    model = storage / "job-bucket/digits/1/model/saved_model.pb"
    assert model.read_text() == "/gcs/job-bucket/digits/1/model/"
    assert left_of(engine, name) == []


def test_a_command_replaces_the_entrypoint_and_args_the_image_s_command(jobs, environment):
    entrypoint = '["python3", "-c", "import sys; print(sys.argv[1:])"]'
    image = build_image(environment, "own", f'ENTRYPOINT {entrypoint}\nCMD ["its", "own"]\n')
    names = [
        jobs.start(custom_job(pool(*command, image=image, args=args)))
        for command in ([], ["echo"])
        for args in ([], ["given"])
    ]
    for name in names:
        jobs.wait(name)
    output = [jobs.texts(name, "workerpool0-0") for name in names]
    assert output == [["['its', 'own']"], ["['given']"], [""], ["given"]]


def test_failures(jobs, engine):
    missing = f"{engine.registry}/none/such:1"
    names = [
        jobs.start(custom_job(failing))
        for failing in (
            python("import sys; print('oh', file=sys.stderr); sys.exit(7)", image=engine.base),
            pool("no-such-program", image=engine.base),
            python("", image=missing),
        )
    ]
    seven, unknown, unpulled = (jobs.wait(name)["error"]["message"] for name in names)
    assert seven.startswith("The replica workerpool0-0 exited with a non-zero status of 7. ")
    assert seven.split("\n")[1] == "oh"
    assert "status of 128. Termination reason: StartError. \n" in unknown
    assert '"no-such-program": executable file not found' in unknown
    assert unpulled.startswith(f'Failed to pull image "{missing}": ')
    assert "startTime" not in jobs.wait(names[2])
    assert left_of(engine, *names) == []


def test_a_replica_that_is_killed_comes_back_at_its_address(jobs, engine, storage):
    code = (
        "import pathlib, socket, time\n"
        "print(socket.gethostname(), socket.gethostbyname(socket.gethostname()), flush=True)\n"
        "while not pathlib.Path('/gcs/data-bucket/end').exists(): time.sleep(0.05)\n"
    )
    name = jobs.start(custom_job(python(code, image=engine.base)))
    jobs.wait_until(lambda: jobs.texts(name, "workerpool0-0"))
    host = jobs.texts(name, "workerpool0-0")[0].split()[0]
    assert engine.docker("kill", host).returncode == 0
    jobs.wait_for_line(name, "Restarting workerpool0-0, which ended with 137.")
    (storage / "data-bucket/end").touch()
    assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    first, second = jobs.texts(name, "workerpool0-0")
    assert first == second


def test_a_cancelled_job_and_a_trial_leave_nothing(jobs, engine):
    stubborn = "print('here', flush=True); import time; time.sleep(600)"
    name = jobs.start(custom_job(python(stubborn, image=engine.base)))
    report = (
        "import json, os, sys; json.dump({'loss': 1.5, 'global_step': 3}, "
        "open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w')); "
        "print(sys.argv[1:], os.environ['AIP_MODEL_DIR'])"
    )
    rate = {"parameterId": "x", "discreteValueSpec": {"values": [2]}}
    tuned, job = jobs.run(tuning_job(rate, trials=1, pools=[python(report, image=engine.base)]))
    [trial] = job["trials"]
    assert trial["finalMeasurement"]["metrics"] == [{"metricId": "loss", "value": 1.5}]
    assert jobs.texts(tuned, "workerpool0-0") == ["['--x=2'] /gcs/bucket/job/1/model/"]

    jobs.wait_until(lambda: jobs.texts(name, "workerpool0-0"))
    jobs.runner.cancel(name)
    assert jobs.wait(name)["state"] == "JOB_STATE_CANCELLED"
    assert left_of(engine, name, tuned) == []


def test_the_user_alone_owns_and_may_write_what_containers_write(
    jobs, engine, storage, monkeypatch
):
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    monkeypatch.setattr(os, "getgid", lambda: 23_456)
    for path in (storage, storage / "data-bucket"):
        os.chown(path, 12_345, 23_456)
        path.chmod(0o755)
    write = "import os; os.mkdir('/gcs/data-bucket/{0}'); open('/gcs/data-bucket/{0}/file', 'w')"
    image = build_image(engine, "unprivileged", "USER 65534:65534\n")
    names = [
        jobs.start(custom_job(python(write.format("root"), image=engine.base))),
        jobs.start(custom_job(python(write.format("unprivileged"), image=image))),
    ]
    for name in names:
        assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED", jobs.texts(name)
    paths = [storage, *storage.rglob("*")]
    assert len(paths) == 6
    for path in paths:
        status = path.stat()
        assert (status.st_uid, status.st_gid) == (12_345, 23_456), path
        assert status.st_mode & 0o022 == 0, path
    assert left_of(engine, *names) == []


EMULATOR = """\
import socket, sys, time
from pathlib import Path
from tests.emulator.run.jobs import custom_job, jobs_on, pool
from distlaunch.emulator.run.docker import DockerBackend
server = socket.create_server(("127.0.0.1", 0))
with jobs_on(DockerBackend(Path.cwd(), f"http://127.0.0.1:{server.getsockname()[1]}")) as jobs:
    name = jobs.start(custom_job(pool("sleep", "600", image=sys.argv[1], count=2)))
    jobs.wait(name, "RUNNING")
    print(name, flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def running_emulator(engine, folder, checkout):
    """Run an emulator with a job in a process of its own, and give the job's name."""
    argv, env = [sys.executable, "-c", EMULATOR, engine.base], {"PYTHONPATH": str(checkout)}
    with subprocess.Popen(
        argv, cwd=folder, env=os.environ | env, stdout=subprocess.PIPE, text=True
    ) as emulator:
        job = emulator.stdout.readline().strip()
        assert len(left_of(engine, job)) == 3
        yield job
        emulator.kill()


def test_the_next_emulator_removes_the_containers_of_one_that_was_killed(
    environment, tmp_path, storage, checkout
):
    with running_emulator(environment, tmp_path, checkout) as alive:
        with running_emulator(environment, tmp_path, checkout) as killed:
            pass
        assert len(left_of(environment, killed)) == 3
        DockerBackend(storage, ENDPOINT).close()
        assert left_of(environment, killed) == []
        assert len(left_of(environment, alive)) == 3
    DockerBackend(storage, ENDPOINT).close()
    assert left_of(environment, alive) == []


def test_no_docker_is_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert main(["emulator", "--port=0", "--run-with=docker"]) == 1
    assert capfd.readouterr() == (
        "",
        f"distlaunch: error: Docker is not running at unix://{tmp_path}/none.sock; start Docker "
        "('sudo systemctl start docker', or Docker Desktop), or set DOCKER_HOST, "
        "or run jobs as processes with --run-with process\n",
    )
