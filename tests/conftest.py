"""What tests of several rooms share."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def checkout(pytestconfig: pytest.Config) -> Path:
    """The folder of the checkout."""
    return pytestconfig.rootpath


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `distlaunch` as a process of its own, in an empty folder unless `cwd` says otherwise."""

    def run(*words: object, cwd: Path = tmp_path, **kwargs) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "distlaunch", *map(str, words)],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            **kwargs,
        )

    return run
