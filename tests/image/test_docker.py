"""Connecting to Docker, and what a user reads where that fails."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import engines  # what tests/image/conftest.py has imported
import pytest

from distlaunch.image.docker import NoDockerError, connect_docker


def connection_error(**kwargs) -> str:
    with pytest.raises(NoDockerError) as caught:
        connect_docker(**kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write_context(docker_config: Path, meta: str) -> None:
    folder = docker_config / "contexts/meta" / hashlib.sha256(b"elsewhere").hexdigest()
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(meta)
    (docker_config / "config.json").write_text('{"currentContext": "elsewhere"}')


def test_docker_that_is_not_running_is_to_be_started(tmp_path, monkeypatch):
    remedy = "start Docker ('sudo systemctl start docker', or Docker Desktop), or set DOCKER_HOST"
    stale = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(stale))
    for address in ("unix:///nowhere.sock", f"unix://{stale}", "tcp://127.0.0.1:1"):
        monkeypatch.setenv("DOCKER_HOST", address)
        assert connection_error() == f"Docker is not running at {address}; {remedy}"


def test_docker_that_hangs_is_to_be_restarted(tmp_path, monkeypatch):
    hung = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(hung))
        bound.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{hung}")
        error = connection_error(timeout=1)
    assert error == f"Docker at unix://{hung} does not answer; restart it"


@pytest.mark.parametrize(
    "address", ["bogus://x", "tcp://127.0.0.1:99999", "tcp://nowhere.invalid:1"]
)
def test_an_invalid_address_is_to_be_checked(address, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", address)
    error = connection_error()
    assert error.startswith(f"cannot connect to Docker at {address} (")
    assert "; check DOCKER_HOST" in error


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without permission")
def test_without_permission_there_is_a_group_to_join(tmp_path):
    folder = Path("/tmp") / f"{tmp_path.name}-{os.getpid()}"
    folder.mkdir(mode=0o755)
    path = folder / "docker.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        bound.listen()
        path.chmod(0o600)
        # The packages are imported as root: other users may not be able to read them.
        code = (
            "import os; from distlaunch.image.docker import connect_docker\n"
            "import docker.transport, http.client, encodings.idna\n"
            "os.setgid(65534); os.setuid(65534); os.environ['HOME'] = '/'\n"
            "try: connect_docker()\nexcept Exception as problem: print(problem)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"DOCKER_HOST": f"unix://{path}"},
            capture_output=True,
            text=True,
            check=False,
        )
    path.unlink()
    folder.rmdir()
    assert done.stdout == (
        f"no permission to use Docker's socket unix://{path}; "
        "run 'sudo usermod -aG docker $USER' and log in again\n"
    ), done.stderr


def test_dockers_current_context_is_used(tmp_path, monkeypatch, docker_config):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    endpoints = {"docker": {"Host": f"unix://{tmp_path}/docker.sock", "SkipTLSVerify": False}}
    meta = {"Name": "elsewhere", "Metadata": {}, "Endpoints": endpoints}
    write_context(docker_config, json.dumps(meta))
    with engines.Scripted(tmp_path):
        client = connect_docker()
        assert client.version()["Version"] == engines.VERSION["Version"]
        client.close()


@pytest.mark.parametrize("meta", ["{}", "[", '{"Name": "elsewhere", "Metadata": 1}'])
def test_a_broken_context_is_reported(meta, monkeypatch, docker_config):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    write_context(docker_config, meta)
    assert "cannot connect to Docker at the address in DOCKER_HOST or" in connection_error()


def test_a_missing_context_is_reported(monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    assert connection_error().startswith("DOCKER_CONTEXT: no Docker context named 'nowhere'")
