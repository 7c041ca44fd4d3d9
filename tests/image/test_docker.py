"""Connecting to Docker, and what a user reads where that fails."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
from typing import TYPE_CHECKING

import pytest
from docker.errors import DockerException
from scripted_docker import VERSION, scripted_docker  # what conftest.py has imported

from distlaunch.errors import ImageError
from distlaunch.image.docker import Docker, NoDockerError, connect_docker
from distlaunch.image.reference import Reference

if TYPE_CHECKING:
    from pathlib import Path


def connection_error(**kwargs) -> str:
    with pytest.raises(NoDockerError) as caught:
        connect_docker(**kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write_context(docker_config: Path, meta: str) -> None:
    folder = docker_config / "contexts/meta" / hashlib.sha256(b"elsewhere").hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.json").write_text(meta)
    (docker_config / "config.json").write_text('{"currentContext": "elsewhere"}')


REFUSED = "Docker is not running at {}; start Docker ("
INVALID = "cannot connect to Docker at {} ("


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("unix:///nowhere.sock", REFUSED),
        ("unix://{folder}/stale.sock", REFUSED),
        ("tcp://127.0.0.1:1", REFUSED),
        ("unix://{folder}/hung.sock", INVALID),
        ("bogus://x", INVALID),
        ("tcp://127.0.0.1:99999", INVALID),
        ("tcp://nowhere.invalid:1", INVALID),
    ],
)
def test_docker_that_cannot_be_reached(tmp_path, monkeypatch, address, error):
    address = address.format(folder=tmp_path)
    monkeypatch.setenv("DOCKER_HOST", address)
    with socket.socket(socket.AF_UNIX) as stale, socket.socket(socket.AF_UNIX) as hung:
        stale.bind(str(tmp_path / "stale.sock"))
        hung.bind(str(tmp_path / "hung.sock"))
        hung.listen()
        assert connection_error(timeout=0.2).startswith(error.format(address))


def test_without_permission_there_is_a_group_to_join(monkeypatch):
    def deny(*_, **_options):
        raise DockerException("Error while fetching server API version") from PermissionError(13)

    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setattr("docker.from_env", deny)
    assert connection_error() == (
        "no permission to use Docker's socket tcp://127.0.0.1:1; "
        "run 'sudo usermod -aG docker $USER' and log in again"
    )


def test_dockers_current_context_is_used(tmp_path, monkeypatch, docker_config):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    endpoints = {"docker": {"Host": f"unix://{tmp_path}/docker.sock", "SkipTLSVerify": False}}
    meta = {"Name": "elsewhere", "Metadata": {}, "Endpoints": endpoints}
    write_context(docker_config, json.dumps(meta))
    with scripted_docker(tmp_path):
        client = connect_docker()
        assert client.version()["Version"] == VERSION["Version"]
        client.close()


def test_a_broken_context_and_a_missing_one_are_reported(monkeypatch, docker_config):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    for meta in ("{}", "[", '{"Name": "elsewhere", "Metadata": 1}'):
        write_context(docker_config, meta)
        assert "cannot connect to Docker at the address in DOCKER_HOST or" in connection_error()
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    assert connection_error().startswith("DOCKER_CONTEXT: no Docker context named 'nowhere'")


# Pushes and pulls


GOOGLE = Reference.parse("us-central1-docker.pkg.dev/p/training/digits:1")
HUB = Reference.parse("ann/digits:1")
DENIED = "denied: requested access to the resource is denied"


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    """Start Docker with fixed responses, and list the lines of progress in `lines`."""
    command = tmp_path / "bin/docker"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setattr("distlaunch.image.docker.find_credentials", lambda _: None)
    with contextlib.ExitStack() as stack:

        def start(**responses):
            address = stack.enter_context(scripted_docker(tmp_path, **responses))
            monkeypatch.setenv("DOCKER_HOST", address)
            lines = []
            docker = stack.enter_context(Docker(lambda _: None, lines.append))
            docker.lines = lines
            return docker

        yield start


@pytest.mark.parametrize(
    ("reference", "message", "expected"),
    [
        (HUB, DENIED, f"push of {HUB.name} denied ({DENIED}); run 'docker login docker.io'"),
        (GOOGLE, DENIED, "run 'gcloud auth application-default login'"),
        (
            GOOGLE,
            'name unknown: Repository "training" not found',
            "run 'gcloud artifacts repositories create training --repository-format=docker ",
        ),
        (HUB, "write /x: no space left on device", "free space with 'docker system prune'"),
        (
            HUB,
            "http: server gave HTTP response to HTTPS client",
            "add docker.io to insecure-registries in Docker's daemon.json",
        ),
        (HUB, "x509: unknown authority", "/etc/docker/certs.d/docker.io/ca.crt"),
        (HUB, "toomanyrequests: rate limit exceeded", "or try again later"),
        (HUB, "dial tcp: lookup x: no such host", "check Docker's network and proxy settings"),
    ],
)
def test_a_failed_push_has_its_remedy(scripted, reference, message, expected):
    docker = scripted(push=[{"status": "Preparing", "id": "a"}, {"error": message}])
    with pytest.raises(ImageError) as caught:
        docker.push(reference)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lost_connection_is_reported(scripted):
    docker = scripted(push=[{"status": "Preparing", "id": "a"}, None])
    with pytest.raises(ImageError, match=r"lost the connection to Docker \(.*\); try again"):
        docker.push(HUB)


def test_a_missing_image_is_named(scripted):
    docker = scripted(json=None, create={"status": 404, "message": "manifest unknown"})
    message = f"Docker cannot pull {HUB} (manifest unknown); check its name"
    with pytest.raises(ImageError, match=re.escape(message)):
        docker.pull([str(HUB)])


def test_the_progress_of_a_push(scripted):
    detail = {"current": 1_000_000, "total": 4_000_000}
    docker = scripted(
        push=[
            {"status": "Preparing", "id": "a"},
            {"status": "Layer already exists", "id": "b"},
            {"status": "Pushing", "id": "a", "progressDetail": detail},
            {"status": "Pushing", "id": "c", "progressDetail": {"current": 2e6, "total": 2e6}},
            {"status": "Pushed", "id": "a"},
        ]
    )
    docker.push(HUB)
    assert docker.lines == ["pushing: 1 of 4 MB", "pushing: 3 of 6 MB", ""]


def test_without_a_docker_command_there_is_no_docker(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoDockerError, match="no docker command on PATH; install Docker"):
        Docker(lambda _: None)
