"""What the tests of the corpus share: its project, a registry."""

from __future__ import annotations

import functools
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from .corpus import cases, registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

DENIED = Path(__file__).with_name("denied.py")


class Checked(NamedTuple):
    """A project, and what was said of it where the network is denied."""

    folder: Path
    said: cases.Said


def _on_this_machine(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Let no name be found but this machine's."""

    def getaddrinfo(host: str, *rest: Any, **more: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(socket.EAI_NONAME, f"{host} is not asked for in tests")
        return ask(host, *rest, **more)

    return getaddrinfo


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.pristine(tmp_path_factory.mktemp("pristine") / "digits")


@pytest.fixture(scope="session")
def base_registry() -> Iterator[registry.Registry]:
    """A registry with a base image and nothing else, which takes down what it is asked."""
    with registry.Registry() as running:
        yield running


@pytest.fixture(scope="session")
def nobodys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A machine without accounts, without a container engine and without a configuration."""
    folder = tmp_path_factory.mktemp("nobody")
    with pytest.MonkeyPatch.context() as patch:
        for name in cases.VARIABLES:
            patch.delenv(name, raising=False)
        for name in ("CLOUDSDK_CONFIG", "DOCKER_CONFIG", "XDG_CACHE_HOME"):
            patch.setenv(name, str(folder))
        patch.setenv("DOCKER_HOST", f"unix://{folder}/no-engine.sock")
        patch.setenv("NO_GCE_CHECK", "true")
        patch.setattr(socket, "getaddrinfo", _on_this_machine(socket.getaddrinfo))
        yield folder


@pytest.fixture
def written(
    tmp_path: Path, pristine: Path, base_registry: registry.Registry, nobodys: Path
) -> Callable[[cases.Case], Path]:
    """Write the project of a case."""
    return lambda case: case.write(tmp_path / "digits", base_registry.host, pristine)


@pytest.fixture(scope="session")
def denied(nobodys: Path) -> Callable[..., tuple[list[cases.Said], set[str]]]:
    """Check projects in a process without a network; return what was said, and its modules."""

    def run(words: Iterable[tuple[str, ...]], folders: Iterable[Path]):
        commands = [
            {"words": ["check", "--json", *each], "folder": str(folder)}
            for each, folder in zip(words, folders, strict=True)
        ]
        done = subprocess.run(
            [sys.executable, DENIED],
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return [cases.Said(*each) for each in told["said"]], set(told["modules"])

    return run


@pytest.fixture(scope="module")
def offline(
    tmp_path_factory: pytest.TempPathFactory,
    pristine: Path,
    base_registry: registry.Registry,
    denied: Callable[..., tuple[list[cases.Said], set[str]]],
) -> Callable[[Mapping[str, cases.Case]], dict[str, Checked]]:
    """Write projects, and check them offline where the network is denied: all in one process."""

    @functools.cache
    def check(names: tuple[str, ...], jobs: tuple[cases.Case, ...]) -> dict[str, Checked]:
        place = tmp_path_factory.mktemp("offline")
        folders = [
            job.write(place / str(number), base_registry.host, pristine)
            for number, job in enumerate(jobs)
        ]
        said, _ = denied([("--offline", *job.words) for job in jobs], folders)
        return dict(zip(names, map(Checked, folders, said), strict=True))

    return lambda corpus: check(tuple(corpus), tuple(corpus.values()))


@pytest.fixture(scope="session")
def with_base(base_registry: registry.Registry) -> tuple[str, ...]:
    """Words that take the base image from where it can be asked for."""
    return ("--set", f"image.base={base_registry.host}/python:3.12")
