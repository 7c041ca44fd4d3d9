"""What the tests of the corpus share: its project, a registry, a machine without accounts."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_registry import FakeRegistry

from distlaunch import scaffold

from .corpus.cases import Case, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

WITHOUT_NETWORK = Path(__file__).with_name("without_network.py")
VARIABLES = (
    "CLOUDSDK_ACTIVE_CONFIG_NAME",
    "CLOUDSDK_AI_REGION",
    "CLOUDSDK_COMPUTE_REGION",
    "CLOUDSDK_CORE_PROJECT",
    "DISTLAUNCH_ENDPOINT",
    "GCLOUD_PROJECT",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_QUOTA_PROJECT",
    "GOOGLE_CLOUD_REGION",
)


def _only_loopback(resolve: Callable[..., Any]) -> Callable[..., Any]:
    def getaddrinfo(host: str, *rest: Any, **more: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(socket.EAI_NONAME, f"{host} is not resolved in tests")
        return resolve(host, *rest, **more)

    return getaddrinfo


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that `init` writes."""
    folder = tmp_path_factory.mktemp("pristine") / "digits"
    scaffold.plan(folder, "digits").write(folder)
    return folder


@pytest.fixture(scope="session")
def base_registry() -> Iterator[FakeRegistry]:
    """A read-only registry with a base image, and one for arm64."""
    with FakeRegistry(read_only=True) as registry:
        for name, tag, architecture in (("python", "3.12", "amd64"), ("arm", "1", "arm64")):
            environment = ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHON_VERSION=3.12.12"]
            config = {
                "os": "linux",
                "architecture": architecture,
                "config": {"Env": environment},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{'0' * 64}"]},
            }
            registry.put_image(name, tag, config, b"layer")
        yield registry


@pytest.fixture(scope="session")
def bare_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A machine without accounts, without Docker and without a configuration."""
    folder = tmp_path_factory.mktemp("bare")
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        for name in ("CLOUDSDK_CONFIG", "DOCKER_CONFIG", "XDG_CACHE_HOME"):
            patch.setenv(name, str(folder))
        patch.setenv("DOCKER_HOST", f"unix://{folder}/no-docker.sock")
        patch.setenv("NO_GCE_CHECK", "true")
        patch.setattr(socket, "getaddrinfo", _only_loopback(socket.getaddrinfo))
        yield folder


@pytest.fixture
def write(
    tmp_path: Path, pristine: Path, base_registry: FakeRegistry, bare_machine: Path
) -> Callable[[Case], Path]:
    """Write the project of a case."""
    return lambda case: case.write(tmp_path / "digits", base_registry.host, pristine)


@pytest.fixture(scope="session")
def run_without_network(bare_machine: Path) -> Callable[..., tuple[list[Result], set[str]]]:
    """Check projects in one process without a network; return the results and its modules."""

    def run(words: Iterable[tuple[str, ...]], folders: Iterable[Path]):
        commands = [
            {"words": ["check", "--json", *each], "folder": str(folder)}
            for each, folder in zip(words, folders, strict=True)
        ]
        done = subprocess.run(
            [sys.executable, WITHOUT_NETWORK],
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        output = json.loads(done.stdout)
        return [Result(*each) for each in output["results"]], set(output["modules"])

    return run


@pytest.fixture(scope="session")
def with_base(base_registry: FakeRegistry) -> tuple[str, ...]:
    """Options for a base image in the tests' registry."""
    return ("--set", f"image.base={base_registry.host}/python:3.12")
