"""What the tests of commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from distlaunch.cli import main

from ..engines.vertex.conftest import no_credentials, serve, tls, trusted, user  # noqa: F401, TID252

if TYPE_CHECKING:
    from pathlib import Path


class Done(NamedTuple):
    """The exit code and the streams of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a command in this process, by default in an empty folder."""

    def run_command(*words: object, cwd: Path = tmp_path) -> Done:
        monkeypatch.chdir(cwd)
        capfd.readouterr()
        code = main([str(word) for word in words])
        return Done(code, *capfd.readouterr())

    return run_command
