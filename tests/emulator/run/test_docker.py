"""Replicas as containers of a real engine, their image from a real registry."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

import pytest

from distlaunch.emulator.run.docker import DockerBackend

from .jobs import custom_job, jobs_on, pool, tuning_job

pytestmark = pytest.mark.slow

ENDPOINT = "http://127.0.0.1:9"  # where nothing listens
REPORT = """\
import json, os, socket, sys
names = [host.partition(":")[0] for hosts in json.loads(os.environ["CLUSTER_SPEC"])["cluster"]
         .values() for host in hosts]
report = {"argv": sys.argv, "env": dict(os.environ), "host": socket.gethostname(),
        "peers": {name: socket.gethostbyname(name) for name in names}}
print(json.dumps(report), flush=True)
"""
# A real conversation between replicas, at the addresses in their environment.
MEET = (
    REPORT
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


def report_of(jobs, name, task):
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
    chief = report_of(jobs, name, "workerpool0-0")
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


def build_image(engine, name, lines):
    uri = f"{engine.repository(name)}:1"
    for words in (["build", "--tag", uri, "-"], ["push", uri]):
        dockerfile = f"FROM {engine.base}\n{lines}" if "build" in words else None
        done = engine.docker(*words, input=dockerfile)
        assert done.returncode == 0, done.stderr
    return uri


@pytest.fixture(scope="module")
def own_image(environment):
    """An image with an entrypoint and a command of its own."""
    entrypoint = '["python3", "-c", "import sys; print(sys.argv[1:])"]'
    return build_image(environment, "own", f'ENTRYPOINT {entrypoint}\nCMD ["its", "own"]\n')


def test_a_command_replaces_the_entrypoint_and_args_the_image_s_command(jobs, own_image):
    pools = [
        pool(*command, image=own_image, args=args)
        for command in ([], ["echo"])
        for args in ([], ["given"])
    ]
    names = [jobs.start(custom_job(each)) for each in pools]
    for name in names:
        jobs.wait(name)
    output = [jobs.texts(name, "workerpool0-0") for name in names]
    assert output == [["['its', 'own']"], ["['given']"], [""], ["given"]]


def test_failures(jobs, engine):
    missing = f"{engine.registry}/none/such:1"
    seven, unknown, unpulled = (
        jobs.start(custom_job(each))
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
    code = REPORT + (
        "import pathlib, time\n"
        "end = pathlib.Path('/gcs/data-bucket/end')\n"
        "while not end.exists(): time.sleep(0.05)\n"
    )
    name = jobs.start(custom_job(python(code, image=engine.base)))
    jobs.wait_until(lambda: jobs.texts(name, "workerpool0-0"))
    host = report_of(jobs, name, "workerpool0-0")["host"]
    assert engine.docker("kill", host).returncode == 0
    jobs.wait_for_line(name, "Restarting workerpool0-0, which ended with 137.")
    create = python("open('/gcs/data-bucket/end', 'w')", image=engine.base)
    jobs.run(custom_job(create))
    assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    first, second = map(json.loads, jobs.texts(name, "workerpool0-0"))
    assert first["host"] == second["host"]
    assert first["peers"] == second["peers"]


def test_a_cancelled_job_and_a_trial_leave_nothing(jobs, engine):
    stubborn = "print('here', flush=True); import time; time.sleep(600)"
    name = jobs.start(custom_job(python(stubborn, image=engine.base)))
    report = (
        "import json, os, sys; json.dump({'loss': 1.5, 'global_step': 3}, "
        "open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w')); "
        "print(sys.argv[1:], os.environ['AIP_MODEL_DIR'])"
    )
    rate = {"parameterId": "x", "discreteValueSpec": {"values": [2]}}
    pools = [python(report, image=engine.base)]
    tuned, job = jobs.run(tuning_job(rate, trials=1, pools=pools))
    (trial,) = job["trials"]
    assert trial["finalMeasurement"]["metrics"] == [{"metricId": "loss", "value": 1.5}]
    assert jobs.texts(tuned, "workerpool0-0") == ["['--x=2'] /gcs/bucket/job/1/model/"]

    jobs.wait_until(lambda: jobs.texts(name, "workerpool0-0"))
    jobs.runner.cancel(name)
    assert jobs.wait(name)["state"] == "JOB_STATE_CANCELLED"
    assert left_of(engine, name, tuned) == []


def test_the_user_owns_what_containers_write_and_nobody_else_may_write(
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
    with subprocess.Popen(
        [sys.executable, "-c", EMULATOR, engine.base],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        text=True,
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


def test_no_docker_is_one_line(cli, tmp_path):
    env = os.environ | {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = cli("emulator", "--port=0", "--run-with=docker", env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"distlaunch: error: Docker is not running at unix://{tmp_path}/none.sock; start Docker "
        "('sudo systemctl start docker', or Docker Desktop), or set DOCKER_HOST, "
        "or run jobs as processes with --run-with process\n"
    )
