"""A registry for the tests of images; it needs no engine and no root."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import engines as scripted  # noqa: F401 - for the tests, which import it from here on
import projects  # noqa: F401
import registries
import wheel_index  # noqa: F401

sys.path.pop(0)

import engine as engines  # what tests/conftest.py has imported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def registry_program() -> str:
    """Debian's docker-registry; where there is none its tests are skipped, and say so."""
    if registries.program() is None and engines.is_demanded():
        engines.prepare(install=True)
    found = registries.program()
    if found is None:
        pytest.skip("no docker-registry here: apt-get install docker-registry")
    return found


@pytest.fixture(scope="session")
def registry(registry_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a registry for all tests, without credentials."""
    with registries.serving(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture
def door(registry: str) -> Iterator[Callable[..., registries.Door]]:
    """Open doors before the registry that fail as they are told."""
    opened: list[registries.Door] = []

    def open_door(rule=lambda _: None, target: str = registry) -> registries.Door:
        opened.append(registries.Door(target, rule))
        return opened[-1].__enter__()

    yield open_door
    for each in opened:
        each.__exit__()


@pytest.fixture(autouse=True)
def docker_config(tmp_path_factory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a configuration of Docker's that is nobody's."""
    folder = tmp_path_factory.mktemp("docker")
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    return folder
