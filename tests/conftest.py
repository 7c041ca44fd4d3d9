"""What tests of several rooms share."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# What tests start as scripts too lies beside them and is imported from there.
sys.path.insert(0, str(Path(__file__).parent))
import chromium
import emulators
import engine as engines
import example_jobs  # noqa: F401 - likewise
import failing_calls  # noqa: F401 - likewise
import fake_google
import fake_registry  # noqa: F401 - for the tests, which import it from there
import json_schemas  # noqa: F401 - likewise
import launches  # noqa: F401 - likewise
import slurm_cluster
import tensorflow_host
import windows  # noqa: F401 - likewise

sys.path.pop(0)

# A shell has what it runs in the background ignore Ctrl-C, and with it all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# So does nohup with a hangup.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# `check` and `submit` would resolve requirements by PyPI; tests with their own index unset it.
os.environ["UV_OFFLINE"] = "1"

# Property-based tests run the same examples every time, however slow the machine is.
settings.register_profile(
    "fixed",
    max_examples=25,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# `make fuzz`: random examples, and more of them.
settings.register_profile(
    "fuzz", settings.get_profile("fixed"), derandomize=False, max_examples=1000
)
settings.load_profile("fixed")


def pytest_configure(config: pytest.Config) -> None:
    """Draw no constants of our modules in fixed examples: they depend on what was imported."""
    if config.getoption("--hypothesis-profile") is None:
        providers._get_local_constants = providers.Constants


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow modules first, so that none is left alone on one core at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def checkout(pytestconfig: pytest.Config) -> Path:
    """The folder of the checkout."""
    return pytestconfig.rootpath


@pytest.fixture(scope="session")
def python() -> Iterator[tensorflow_host.PythonHost]:
    """A Python that has imported what the commands import."""
    with tensorflow_host.running(*tensorflow_host.COMMAND_IMPORTS) as host:
        yield host


@pytest.fixture(scope="session")
def tensorflow() -> Iterator[tensorflow_host.PythonHost]:
    """A Python that has imported what the commands and their tasks import."""
    with tensorflow_host.running(*tensorflow_host.COMMAND_IMPORTS, "tensorflow", "keras") as host:
        yield host


@pytest.fixture
def cli(python, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `distlaunch`, by default in an empty folder; with PYTHONPATH in a new Python."""

    def run(
        *words: object, cwd: Path = tmp_path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        arguments = [str(word) for word in words]
        if env and "PYTHONPATH" in env:
            command = [sys.executable, "-m", "distlaunch", *arguments]
            return subprocess.run(
                command, cwd=cwd, env=env, capture_output=True, text=True, check=False
            )
        result = python.run("distlaunch", *arguments, cwd=cwd, env=env or os.environ)
        return subprocess.CompletedProcess(arguments, result.code, result.out, result.err)

    return run


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Callable[..., emulators.Emulator]]:
    """Start `distlaunch emulator` with some words; it ends with the test."""
    with contextlib.ExitStack() as until_the_end:

        def start(*words: str, project: Path | None = None) -> emulators.Emulator:
            folder = tmp_path / "buckets"
            folder.mkdir(exist_ok=True)
            return until_the_end.enter_context(emulators.running(folder, *words, project=project))

        yield start


@pytest.fixture
def google(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., fake_google.FakeGoogle]:
    """Answer this process's requests to Google with a fake that the test configures."""

    def install(**knobs: Any) -> fake_google.FakeGoogle:
        fake = fake_google.FakeGoogle(**knobs)
        fake.install(monkeypatch, tmp_path)
        return fake

    return install


@pytest.fixture(scope="session")
def slurm() -> Iterator[slurm_cluster.SlurmCluster]:
    """A Slurm cluster; without one its tests are skipped or fail, as those of `engine`."""
    try:
        with slurm_cluster.running(install=engines.is_required()) as started:
            yield started
    except slurm_cluster.NoSlurmError as problem:
        if engines.is_required():
            raise
        pytest.skip(f"no Slurm here: {problem}")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """Chromium; without it its tests are skipped or fail, as those of `engine`."""
    profile = tmp_path_factory.mktemp("chromium")
    try:
        with chromium.running(profile, install=engines.is_required()) as started:
            yield started
    except chromium.NoChromiumError as problem:
        if engines.is_required():
            raise
        pytest.skip(f"no Chromium here: {problem}")


@pytest.fixture(scope="session")
def engine() -> Iterator[engines.Engine]:
    """A real container engine with a registry, one for all tests of this machine.

    Without one its tests are skipped with the reason; with DISTLAUNCH_TEST_ENGINE=1 they fail.
    """
    try:
        with engines.running(install=engines.is_required()) as started:
            yield started
    except engines.NoEngineError as problem:
        if engines.is_required():
            raise
        pytest.skip(f"no container engine here: {problem}")
