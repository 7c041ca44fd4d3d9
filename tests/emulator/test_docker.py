"""Replicas as containers of a real engine, their image from a real registry."""

from __future__ import annotations

import os
import re
import socket

import pytest

from distlaunch.cli import main
from distlaunch.emulator.docker import DockerBackend
from distlaunch.failure_reasons import explain

from .jobs import custom_job, jobs_on, pool, tuning_job

pytestmark = pytest.mark.slow


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
def endpoint():
    """Listen as an emulator does: any other removes containers of one that does not listen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def jobs(environment, storage, endpoint):
    with jobs_on(DockerBackend(storage, endpoint), grace=1.0) as jobs:
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
    dockerfile = f"FROM {engine.base}\n{lines}"
    assert engine.docker("build", "--tag", uri, "-", input=dockerfile).returncode == 0
    assert engine.docker("push", uri).returncode == 0
    return uri


def python(code, **more):
    return pool("python3", "-c", code, **more)


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
    output = [jobs.texts(name) for name in names]
    assert output == [["['its', 'own']"], ["['given']"], [""], ["given"]]


def test_failures(jobs, engine):
    missing = f"{engine.registry}/none/such:1"
    names = [
        jobs.start(custom_job(failing))
        for failing in (
            pool("sh", "-c", "echo oh >&2; exit 7", image=engine.base),
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
    reasons = [explain(text).reason for text in (unknown, unpulled)]
    assert reasons[0].startswith("the image has no such command")
    assert reasons[1].startswith("the image cannot be pulled")
    assert left_of(engine, *names) == []


# Replicas resolve all names at their start, also those of others that have not started.
RESOLVE = """\
import json, os, pathlib, socket, time
hosts = sum(json.loads(os.environ["CLUSTER_SPEC"])["cluster"].values(), [])
print(socket.gethostname(), *map(socket.gethostbyname, (host[:-5] for host in hosts)), flush=True)
while not pathlib.Path('/gcs/data-bucket/end').exists(): time.sleep(0.05)
os.makedirs(os.environ["AIP_MODEL_DIR"])
"""


def test_a_replica_that_is_killed_comes_back_at_its_address(jobs, engine, storage):
    pools = [python(RESOLVE, image=engine.base), pool("sleep", "600", image=engine.base)]
    output = {"outputUriPrefix": "gs://job-bucket/digits"}
    name = jobs.start(custom_job(*pools, baseOutputDirectory=output))
    jobs.wait_until(lambda: jobs.texts(name))
    host = jobs.texts(name)[0].split()[0]
    assert re.fullmatch(r"cmle-training-workerpool0-[0-9a-f]{10}-0", host)
    assert engine.docker("kill", host).returncode == 0
    jobs.wait_for_line(name, "Restarting workerpool0-0, which ended with 137.")
    (storage / "data-bucket/end").touch()
    assert jobs.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    first, second = jobs.texts(name)
    assert first == second
    assert len(set(first.split())) == 3
    assert (storage / "job-bucket/digits/model").is_dir()


REPORT = """\
import os, sys
print(sys.argv[1:], os.environ["AIP_MODEL_DIR"])
open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w").write('{"loss": 1.5}')
"""


def test_a_cancelled_job_and_a_trial_leave_nothing(jobs, engine):
    name = jobs.start(custom_job(pool("sleep", "600", image=engine.base)))
    rate = {"parameterId": "x", "discreteValueSpec": {"values": [2]}}
    tuned, job = jobs.run(tuning_job(rate, trials=1, pools=[python(REPORT, image=engine.base)]))
    [trial] = job["trials"]
    assert trial["finalMeasurement"]["metrics"] == [{"metricId": "loss", "value": 1.5}]
    assert jobs.texts(tuned) == ["['--x=2'] /gcs/bucket/job/1/model/"]

    jobs.wait(name, "RUNNING")
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
    for user, uri in (("root", engine.base), ("unprivileged", image)):
        name, job = jobs.run(custom_job(python(write.format(user), image=uri)))
        assert job["state"] == "JOB_STATE_SUCCEEDED"
        assert left_of(engine, name) == []
    paths = [storage, *storage.rglob("*")]
    assert len(paths) == 6
    statuses = [path.stat() for path in paths]
    assert {(status.st_uid, status.st_gid) for status in statuses} == {(12_345, 23_456)}
    assert not any(status.st_mode & 0o022 for status in statuses)


def test_the_next_emulator_removes_the_containers_of_one_that_was_killed(
    environment, emulator, storage, endpoint
):
    alive, killed = emulator("--run-with=docker"), emulator("--run-with=docker")
    names = []
    for server in (alive, killed):
        server.create(custom_job(pool("sleep", "600", image=environment.base)))
        names.append(server.wait("RUNNING")["name"])
    killed.process.kill()
    killed.process.wait()
    assert [len(left_of(environment, name)) for name in names] == [2, 2]
    DockerBackend(storage, endpoint).close()
    assert [len(left_of(environment, name)) for name in names] == [2, 0]


def test_no_docker_is_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert main(["emulator", "--port=0", "--run-with=docker"]) == 1
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith(f"distlaunch: error: Docker is not running at unix://{tmp_path}/none")
    assert line.endswith(", or run jobs as processes with --run-with process")
