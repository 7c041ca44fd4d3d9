"""What the tests of launches share."""

from __future__ import annotations

import json

import pytest
from launches import MOVE, SUBMIT, write_project


@pytest.fixture
def project(tmp_path):
    """A project whose job may be moved."""
    return write_project(tmp_path / "digits", MOVE)


@pytest.fixture
def submit(project, cli):
    """Submit the project's job, or the one of another folder."""
    return lambda emulator, *words, folder=project: cli(
        *SUBMIT, *words, cwd=folder, env=emulator.environment
    )


@pytest.fixture
def records():
    """Read the records of projects in their order."""

    def read(*folders):
        paths = [path for folder in folders for path in folder.glob(".distlaunch/jobs/*.json")]
        launches = [json.loads(path.read_text()) for path in paths]
        return sorted(launches, key=lambda launch: launch["time"])

    return read
