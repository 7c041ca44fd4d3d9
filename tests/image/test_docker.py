"""Connecting to Docker, and what a user reads where that fails."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
import requests
from docker.errors import DockerException, NotFound

from distlaunch.docker_client import NoDockerError, connect_docker
from distlaunch.errors import ImageError
from distlaunch.events import Notice
from distlaunch.image.context import read_context
from distlaunch.image.docker import Docker, failure_reason
from distlaunch.image.dockerfile_parser import read_dockerfile
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


def test_docker_by_ssh_needs_a_package_of_docker_py(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "paramiko", None)
    text = connection_error()
    assert text.startswith("Docker at ssh://me@127.0.0.1:1 needs the Python package paramiko; run ")
    assert "-m pip install paramiko'" in text


def test_a_docker_command_of_podman(monkeypatch, tmp_path):
    (tmp_path / "docker").write_text("#!/bin/sh\necho podman version 4.3.1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    assert connection_error() == (
        "podman does not listen at unix:///nowhere.sock; run 'systemctl --user start "
        "podman.socket' and 'export DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock'"
    )


def test_without_permission_there_is_a_group_to_join(monkeypatch):
    def deny(*_, **_options):
        raise DockerException("Error while fetching server API version") from PermissionError(13)

    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setattr("docker.from_env", deny)
    assert connection_error() == (
        "no permission to use Docker's socket tcp://127.0.0.1:1; "
        "run 'sudo usermod -aG docker $USER' and log in again"
    )


def test_without_a_docker_command_there_is_no_docker(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoDockerError, match="no docker command on PATH; install Docker"):
        Docker(print, print)


@pytest.mark.slow
def test_dockers_current_context_is_used(engine, monkeypatch, docker_config):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    endpoints = {"docker": {"Host": engine.socket, "SkipTLSVerify": False}}
    meta = {"Name": "elsewhere", "Metadata": {}, "Endpoints": endpoints}
    write_context(docker_config, json.dumps(meta))
    client = connect_docker()
    assert client.ping()
    client.close()


def test_a_broken_context_and_a_missing_one_are_reported(monkeypatch, docker_config):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    for meta in ("{}", "[", '{"Name": "elsewhere", "Metadata": 1}'):
        write_context(docker_config, meta)
        assert "cannot connect to Docker at the address in DOCKER_HOST or" in connection_error()
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    assert connection_error().startswith("DOCKER_CONTEXT: no Docker context named 'nowhere'")
    monkeypatch.delenv("DOCKER_CONTEXT")
    config = docker_config / "config.json"
    config.write_text('{"currentContext": "gone"}')
    assert connection_error() == (
        f"{config}: currentContext: no Docker context named 'gone'; see 'docker context ls'"
    )


def test_an_address_of_docker_has_a_scheme(monkeypatch):
    for scheme, address in (("tcp", "127.0.0.1:2375"), ("unix", "/run/user/1000/docker.sock")):
        monkeypatch.setenv("DOCKER_HOST", address)
        expected = f"DOCKER_HOST: no scheme in {address}; set {scheme}://{address}"
        assert connection_error() == expected


# Pushes and pulls


GOOGLE = Reference.parse("us-central1-docker.pkg.dev/p/training/digits:1")
HUB = Reference.parse("ann/digits:1")
DENIED = "denied: requested access to the resource is denied"


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """Docker with given events of a push; `lines` is its progress."""
    (tmp_path / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("distlaunch.image.docker.find_credentials", lambda _: None)

    def start(*events):
        api = Mock(**{"push.return_value": iter(events), "inspect_image.side_effect": NotFound("")})
        api.version.return_value = {"Arch": "arm64"}
        monkeypatch.setattr("distlaunch.image.docker.connect_docker", lambda: Mock(api=api))
        lines, notices = [], []
        docker = Docker(notices.append, lines.append)
        docker.lines, docker.notices, docker.api = lines, notices, api
        return docker

    return start


@pytest.mark.parametrize(
    ("reference", "message", "expected"),
    [
        (HUB, DENIED, f"push of {HUB.name} denied ({DENIED}); run 'docker login docker.io'"),
        (GOOGLE, DENIED, "run 'gcloud auth application-default login'"),
        (GOOGLE, "name unknown: x", "run 'gcloud artifacts repositories create training --repo"),
        (GOOGLE, "denied: Quota exceeded for x", "com/iam-admin/quotas?project=p"),
        (GOOGLE, "toomanyrequests: Quota exceeded for x", "com/iam-admin/quotas?project=p"),
        (
            GOOGLE,
            "error parsing HTTP 403 response body: invalid character '<' looking for beginning of "
            'value: "<!DOCTYPE html>\\n<html><h1>Forbidden</h1></html>"',
            "is in between; contact your network's administrators, or set HTTPS_PROXY",
        ),
        (HUB, "write /x: no space left on device", "free space with 'docker system prune'"),
        (HUB, "http: server gave HTTP response to HTTPS client", "add docker.io to insecure-reg"),
        (HUB, "x509: unknown authority", "/etc/docker/certs.d/docker.io/ca.crt"),
        (HUB, "toomanyrequests: rate limit exceeded", "or try again later"),
        (HUB, "dial tcp: lookup x: no such host", "check Docker's network and proxy settings"),
    ],
)
def test_a_failed_push_has_its_remedy(docker, reference, message, expected):
    with pytest.raises(ImageError) as caught:
        docker({"status": "Preparing", "id": "a"}, {"error": message}).push(reference)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lost_connection_and_a_missing_image_are_reported(docker):
    started = docker()
    started.api.push.side_effect = requests.ConnectionError("reset")
    with pytest.raises(ImageError, match=r"lost the connection to Docker \(reset\); try again"):
        started.push(HUB)
    started.api.pull.side_effect = NotFound("404", explanation="manifest unknown")
    message = f"Docker cannot pull {HUB} (manifest unknown); check its name"
    with pytest.raises(ImageError, match=re.escape(message)):
        started.pull([str(HUB)])


def test_the_progress_of_a_push(docker):
    pushing = docker(
        {"status": "Layer already exists", "id": "b"},
        {"status": "Pushing", "id": "a", "progressDetail": {"current": 1e6, "total": 4e6}},
        {"status": "Pushing", "id": "c", "progressDetail": {"current": 2e6, "total": 2e6}},
        {"status": "Pushed", "id": "a"},
    )
    pushing.push(HUB)
    assert pushing.lines == ["pushing: 1 of 4 MB", "pushing: 3 of 6 MB", ""]


# Builds


def test_the_build_gets_files_and_folders_with_their_modes(docker, tmp_path):
    (tmp_path / "docker").write_text(
        '#!/bin/sh\n[ "$2" = --help ] && exit\nfor folder; do :; done\n'
        f"cd $folder && /usr/bin/find . -printf '%p %m %T@\\n' > {tmp_path}/listing\n"
        f'echo "$@" > {tmp_path}/words\n'
    )
    project = tmp_path / "project"
    for folder in ("logs", "trainer", "ignored/inner"):
        (project / folder).mkdir(parents=True)
    (project / "logs").chmod(0o777)
    (project / "trainer/task.py").touch(0o600)
    (project / "trainer/link").symlink_to("../logs")
    files = read_context(project, "ignored\n!ignored/inner\n").entries
    previous = os.umask(0o077)
    dockerfile = read_dockerfile("FROM scratch\n", {"A": "1 2", "B": ""})
    builder = docker()
    builder.build(dockerfile, project, files, HUB)
    os.umask(previous)
    text = "Docker emulates linux/amd64 on arm64, which takes longer"
    notice = f"{text}; image.builder: cloud-build does not"
    assert builder.notices == [Notice(notice)]
    listing = dict(line.split(" ", 1) for line in (tmp_path / "listing").read_text().splitlines())
    del listing["./trainer/link"]
    modes = {".": 755, "./ignored": 755, "./ignored/inner": 755, "./logs": 777, "./trainer": 755}
    modes["./trainer/task.py"] = 644
    assert listing == {path: f"{mode} 0.0000000000" for path, mode in modes.items()}
    assert "--build-arg=A=1 2 --build-arg=B= " in (tmp_path / "words").read_text()


PIP = "No matching distribution found for pywin32==306"
OLD = "executor failed running [/bin/sh -c make]: exit code: 2"
CLASSIC = "The command '/bin/sh -c make' returned a non-zero code: 2"
BUILDKIT = f"""\
#8 1.1 ERROR: of a step before
#9 [3/4] RUN pip install x
#9 2.3 ERROR: {PIP}
#9 ERROR: process "/bin/sh -c pip install x" did not complete successfully: exit code: 1
------
 > [3/4] RUN pip install x:
2.3 ERROR: {PIP}
------
Dockerfile:3
--------------------
   3 | >>> RUN pip install x
--------------------
ERROR: failed to solve: process "/bin/sh -c pip install x" did not complete successfully
"""
BUILDKIT_20 = f"""\
#8 2.3 ERROR: {PIP}
#9 0.31 no rule to make
#9 ERROR: {OLD}
------
 > [2/2] RUN make:
------
{OLD}
"""
MISSING = 'failed to compute cache key: "/nothing" not found: not found'
BUILDKIT_COPY = f"#8 [2/2] COPY nothing /x\n#8 ERROR: {MISSING[29:]}\n------\n{MISSING}\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BUILDKIT, PIP),
        (BUILDKIT_20, f"no rule to make; {OLD}"),
        (f"Step 2/2 : RUN pip\nCollecting x\nERROR: {PIP}\n{CLASSIC}\n", PIP),
        (f"ERROR: {PIP}\nStep 2/2 : RUN make\nno rule\n{CLASSIC}\n", f"no rule; {CLASSIC}"),
        (BUILDKIT_COPY, f"({MISSING}"),
        ("Sending build context\nparse error: RUMN\n", "(parse error: RUMN"),
        ("", "no output"),
    ],
)
def test_a_failed_build_has_the_reason_of_the_step(docker, tmp_path, text, reason):
    assert f"({failure_reason(text.splitlines())}".endswith(reason)
    (tmp_path / "lines").write_text(text)
    (tmp_path / "docker").write_text(f"#!/bin/sh\n/bin/cat {tmp_path}/lines\nexit 1\n")
    with pytest.raises(ImageError) as caught:
        docker().build(read_dockerfile("FROM scratch\n"), tmp_path, [], HUB)
    assert f"{reason}); its last lines are above" in str(caught.value)
