"""Images are built by a real Docker, pushed to a real registry, pulled and run."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import base_image
import engine as engines
import images
import pytest

from distlaunch.errors import ImageError
from distlaunch.image import execute_plan, plan_image
from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.render import render
from distlaunch.resources import TRAINER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.job.model import Job

pytestmark = pytest.mark.slow

PASSWORD = "s3cret/of:Ann@home"  # noqa: S105
HASHED = "$2b$04$aJ.hG.e02s.zdOlmixAUYeRtbDB8AqSxHk/Uqeu6ZmKdrdNNWJBZm"  # bcrypt, of PASSWORD


@pytest.fixture(autouse=True)
def use_the_engine(engine, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", engine.socket)


@pytest.fixture
def folder(tmp_path) -> Path:
    return images.project(tmp_path / "digits")


def build(job: Job, folder: Path, notices: list[str] | None = None, **kwargs) -> str:
    """Plan and build an image; append the texts of notices to a list."""
    texts = [] if notices is None else notices
    return execute_plan(plan_image(job, folder), lambda each: texts.append(each.text), **kwargs)


def build_error(job: Job, folder: Path, notices: list[str] | None = None) -> str:
    with pytest.raises(ImageError) as caught:
        build(job, folder, notices)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run(engine, uri: str, *words: str) -> str:
    return succeeded(engine.docker("run", "--rm", uri, *words))


def test_an_image_is_built_run_changed_and_left_alone(engine, folder, monkeypatch):
    job = images.job(engine.repository(), engine.base)
    first = build(job, folder)
    assert run(engine, first, "a", "b") == "six 1.16.0 a b"
    (folder / "trainer/task.py").write_text(images.PROGRAM + "print('changed')\n")
    monkeypatch.setenv("DOCKER_HOST", images.NO_DOCKER)
    second = build(job, folder, notices := [])
    assert "appending the code" in notices[0]
    assert run(engine, second) == "six 1.16.0\nchanged"
    assert images.layers(second)[:-1] == images.layers(first)[:-1]
    assert build(job, folder) == second


# CUDA's libraries are found, and every way to build gives the same image

LIBRARY = "nvidia/foo/lib/libfoo.so.1"
GPU_PROGRAM = """\
import ctypes, os
import distlaunch_trainer
ctypes.CDLL("libfoo.so.1")
print(os.readlink("/usr/local/lib/nvidia-wheels/libfoo.so.1"))
"""
FOLDERS = "/usr/local/lib/nvidia-wheels:/usr/local/nvidia/lib64:/usr/local/nvidia/lib"
OWN = ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=video"]
WITH_RDMA = Cluster(Pool(Machine("a4-highgpu-8g", "NVIDIA_B200", 8)))
VARIABLES = [
    f"PATH=/usr/local/nvidia/bin:/opt/python/bin:{base_image.PATH}",
    *("LANG=C.UTF-8", "PYTHON_VERSION=3.11.2", f"LD_LIBRARY_PATH={FOLDERS}:/own/lib", *OWN),
    *(
        "PYTHONUNBUFFERED=1",
        "PYTHONHASHSEED=0",
        "PIP_DISABLE_PIP_VERSION_CHECK=1",
        "PIP_ROOT_USER_ACTION=ignore",
    ),
]


@pytest.fixture
def base_with_variables(engine, tmp_path) -> Iterator[str]:
    """A base image with Python in another folder, and with variables of its own."""
    name = f"{engine.repository('own')}:1"
    (tmp_path / "Dockerfile").write_text(
        f"FROM {engine.base}\nRUN mv /usr/local /opt/python && mkdir -p /usr/local/lib\n"
        f"ENV PATH=/opt/python/bin:$PATH LD_LIBRARY_PATH=/own/lib {' '.join(OWN)}\n"
    )
    succeeded(engine.docker("build", "--tag", name, str(tmp_path)))
    succeeded(engine.docker("push", name))
    yield name
    engine.docker("rmi", name)


def test_every_way_to_build_gives_the_same_image(
    engine, base_with_variables, tmp_path, monkeypatch
):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    # A library that the loader takes: every Linux with glibc has this small one.
    library = next(Path("/").glob("lib/*-linux-gnu/libdl.so.2")).read_bytes()
    images.write_wheel(wheels, "foo", files={LIBRARY: library})
    job, other = (
        replace(images.job(engine.repository(), base_with_variables), cluster=WITH_RDMA)
        for _ in range(2)
    )
    with images.serving(wheels, engine) as (host, port):
        options = f"--no-index\n--find-links http://{host}:{port}/\n--trusted-host {host}\n"
        folder = images.project(tmp_path / "digits", f"{options}foo\n")
        (folder / "trainer/task.py").write_text(GPU_PROGRAM)
        by_docker = build(job, folder)
        monkeypatch.setenv("DOCKER_HOST", images.NO_DOCKER)
        monkeypatch.delenv("UV_OFFLINE")  # for the index of this test
        of_wheels = build(other, folder, notices := [])
        assert any("of wheels, with uv alone" in notice for notice in notices)
        render(job, folder, folder, "vertex").write(folder)
        environment = os.environ | {"DOCKER_BUILDKIT": "1"}
        by_hand = succeeded(engine.docker("build", "--quiet", str(folder), env=environment))
    folders = f"/app /opt/python/lib/python3.11/site-packages/{TRAINER}*"
    # RECORD lists the bytecode, which pip compiles only where it runs in the image. What else pip
    # writes beside the wheel's files names pip.
    left_out = " ".join(
        f"-not -name {name}" for name in ("'*.pyc'", "RECORD", "INSTALLER", "REQUESTED")
    )
    find = f"find {folders} -type f {left_out}"
    files = ("-c", f"{find} -exec ls -l {{}} + | cut -c1-10,45-; {find} | xargs sha256sum")
    listed, configs = [], []
    for image in (by_docker, of_wheels, by_hand):
        if image != by_hand:
            succeeded(engine.docker("pull", image))
        (details,) = json.loads(succeeded(engine.docker("inspect", image)))
        names = ("Entrypoint", "WorkingDir", "Cmd", "Env")
        configs.append([*(details["Config"][name] for name in names), details["Architecture"]])
        printed = run(engine, image)
        assert printed == f"/opt/python/lib/python3.11/site-packages/{LIBRARY}"
        listing = engine.docker("run", "--rm", "--entrypoint", "sh", image, *files).stdout
        listed.append(sorted(listing.split()))
        engine.docker("rmi", image)
    assert configs[0][3:] == [VARIABLES, "amd64"]
    assert configs[0] == configs[1] == configs[2]
    assert any("/trainer/task.py" in each for each in listed[0])
    assert any(f"/{TRAINER}/run.py" in each for each in listed[0])
    assert listed[0] == listed[1] == listed[2]


# The user's own Dockerfile


def test_a_dockerfile_of_the_users_own_is_built_and_pushed(engine, folder, monkeypatch, tmp_path):
    login = "machine index.example.com login ann password s3cret-of-ann"
    (tmp_path / "netrc").write_text(login)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (folder / "Dockerfile").write_text(
        f"ARG BASE={engine.base}\nFROM $BASE AS made\n"
        "RUN --mount=type=secret,id=netrc sha256sum /run/secrets/netrc > /seen\n"
        'FROM $BASE\nCOPY --from=made /seen /seen\nCOPY . /code\nCMD ["cat", "/seen"]\n'
    )
    (folder / ".dockerignore").write_text("*.txt\n")
    job = images.job(engine.repository())
    built = build(job, folder)
    assert run(engine, built).split()[0] == hashlib.sha256(login.encode()).hexdigest()
    assert b"s3cret-of-ann" not in images.content(built, without=engine.base)
    listed = run(engine, built, "find", "/code", "-type", "f").split()
    files = (".dockerignore", "Dockerfile", "trainer/__init__.py", "trainer/task.py")
    assert sorted(listed) == [f"/code/{path}" for path in files]
    assert build(job, folder) == built


@pytest.mark.parametrize("has_buildkit", [True, False])
def test_a_failed_build_shows_its_last_lines(engine, folder, request, has_buildkit):
    if not has_buildkit:
        request.getfixturevalue("without_buildkit")
    job, notices = images.job(engine.repository()), []
    (folder / "Dockerfile").write_text(f"FROM {engine.base}\nRUN seq -f 'line %g' 50; exit 7\n")
    error = build_error(job, folder, notices)
    assert re.fullmatch(r"docker build failed \(.*\b7\); its last lines are above", error)
    assert any(notice.startswith("step 2/2: RUN seq -f") for notice in notices)
    assert "line 50" in notices[-1]
    (folder / "Dockerfile").write_text(f"FROM {engine.base}\nRUMN x\n")
    assert "unknown instruction: RUMN" in build_error(job, folder)


# Without BuildKit


@pytest.fixture
def without_buildkit(monkeypatch, tmp_path):
    """Have only a docker command without BuildKit on PATH."""
    command = tmp_path / "bin/docker"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\n[ "$2" = --help ] || exec {engines.DOCKER} "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))


def test_buildkit_is_needed_for_pip_settings(
    engine, folder, monkeypatch, without_buildkit, without_pip_settings
):
    job = images.job(engine.repository(), engine.base)
    assert run(engine, build(job, folder), "a") == "six 1.16.0 a"
    (folder / "requirements.txt").write_text("six\n")
    monkeypatch.setenv("PIP_INDEX_URL", "https://ann:s3cret@index.example.com/simple")
    error = build_error(job, folder)
    assert error.startswith("pip's settings on this machine (package index, certificate or login)")
    assert error.endswith("; install docker-buildx, or remove the settings")
    assert "s3cret" not in error


# pip


def test_private_indexes_are_reached_and_their_password_is_nowhere(engine, tmp_path, monkeypatch):
    """Logins are in pip's settings, in netrc, and in a variable of requirements.txt."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("TOKEN", quoted := quote(PASSWORD, safe=""))
    monkeypatch.setenv("DISTLAUNCH_BUILD_VARIABLES", "TOKEN")
    names = [f"{each}_{uuid.uuid4().hex}" for each in ("pip", "netrc", "variable")]
    with contextlib.ExitStack() as stack:
        hosts = []
        for name in names:  # which are in no cache of Docker
            simple = tmp_path / name / "simple" / name.replace("_", "-")
            simple.mkdir(parents=True)
            images.write_wheel(simple, name)
            server = images.serving(tmp_path / name, engine, "ann", PASSWORD)
            address, port = stack.enter_context(server)
            hosts.append(f"{address}:{port}/simple/")
        monkeypatch.setenv("PIP_TRUSTED_HOST", address)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://ann:{quoted}@{hosts[0]}")
        (tmp_path / "netrc").write_text(f"machine {address} login ann password {PASSWORD}\n")
        lines = [f"--extra-index-url http://{hosts[1]}"]
        lines += [f"--extra-index-url http://ann:${{TOKEN}}@{hosts[2]}", *names]
        folder = images.project(tmp_path / "digits", "\n".join(lines))
        (folder / "trainer/task.py").write_text(f"import {', '.join(names)}; print('imported')")
        notices, shown = [], []
        built = build(
            images.job(engine.repository(), engine.base), folder, notices, progress=shown.append
        )
    assert run(engine, built) == "imported"
    ids = engine.docker("images", "--all", "--quiet", "--no-trunc").stdout.split()
    content = images.content(built, without=engine.base)
    for text in (
        content,
        engine.docker("inspect", *ids).stdout.encode(),
        engine.docker("history", "--no-trunc", built).stdout.encode(),
        "".join([*notices, *shown]).encode(),
    ):
        assert PASSWORD.encode() not in text
        assert quoted.encode() not in text
    assert names[0].encode() in content


# Registries


@pytest.fixture
def private(engine, tmp_path) -> Iterator[str]:
    """HOST:PORT of a registry with a login."""
    (tmp_path / "htpasswd").write_text(f"ann:{HASHED}\n")
    auth = {"htpasswd": {"realm": "x", "path": f"{tmp_path}/htpasswd"}}
    with engines.serve_registry(tmp_path / "private", auth=auth) as port:
        yield f"127.0.0.1:{port}"


def test_a_private_base_and_repository(private, engine, folder, log_in, docker_config):
    log_in(private, PASSWORD)
    base = images.fresh(private, "base")
    images.push(base, config={"Env": ["A=1"]})
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY . /x\n")
    built = build(images.job(f"{private}/{folder.parent.name}"), folder)
    assert "A=1" in images.image(built).config["config"]["Env"]
    for secret in (PASSWORD.encode(), base64.b64encode(f"ann:{PASSWORD}".encode())):
        assert secret not in images.content(built)

    (docker_config / "config.json").unlink()
    assert build_error(images.job(f"{private}/{folder.parent.name}"), folder).endswith(
        f"run 'docker login {private}'"
    )


# Interrupted


def test_an_interruption_ends_the_steps_in_docker(engine, folder):
    mark = f"sleep {10_000_000 + os.getpid()}"
    (folder / "distlaunch.yaml").write_text(
        f"name: digits\nimage: {{repository: '{engine.repository()}'}}\n"
        "cluster: {chief: {machine: n1-standard-4}}\n"
    )
    (folder / "Dockerfile").write_text(f"FROM {engine.base}\nRUN echo begun; {mark}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "distlaunch", "build"],
        cwd=folder,
        env=os.environ | {"DOCKER_HOST": engine.socket},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(mark, is_running=True)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.endswith("distlaunch: interrupted\n")
    wait_until(mark, is_running=False)


def wait_until(mark: str, *, is_running: bool) -> None:
    until = time.monotonic() + 60
    command = ["pgrep", "-f", mark]
    while (subprocess.run(command, capture_output=True, check=False).returncode == 0) != is_running:
        assert time.monotonic() < until
        time.sleep(0.05)
