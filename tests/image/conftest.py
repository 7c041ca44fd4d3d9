"""Registries for the tests of images."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import images

sys.path.pop(0)

from fake_registry import FakeRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine import Engine


@pytest.fixture(scope="session")
def docker_registry(engine: Engine) -> str:
    """HOST:PORT of Docker's registry, without login."""
    return engine.registry


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeRegistry]:
    """A registry in this process, without login."""
    with FakeRegistry() as running:
        yield running


@pytest.fixture(scope="session")
def registry(fake: FakeRegistry) -> str:
    """HOST:PORT of `fake`."""
    return fake.host


@pytest.fixture(params=["registry", "docker_registry"])
def any_registry(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of `fake` and of Docker's registry."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def door(fake: FakeRegistry) -> Iterator[Callable[..., FakeRegistry]]:
    """Start registries with the repositories of `fake` and with faults."""
    with contextlib.ExitStack() as stack:
        yield lambda rule=lambda _: None, **options: stack.enter_context(
            FakeRegistry(rule, **{"repositories": fake.repositories, **options})
        )


@pytest.fixture(autouse=True)
def docker_config(tmp_path_factory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of Docker's configuration."""
    folder = tmp_path_factory.mktemp("docker")
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    return folder


@pytest.fixture
def without_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", images.NO_DOCKER)


@pytest.fixture
def without_pip_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have pip find packages as it does by default."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


@pytest.fixture
def log_in(docker_config: Path) -> Callable[..., None]:
    """Write a login into Docker's configuration."""

    def write(host: str, password: str, *, user: str = "ann") -> None:
        auth = base64.b64encode(f"{user}:{password}".encode()).decode()
        (docker_config / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))

    return write
