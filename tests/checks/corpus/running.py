"""Runs a distlaunch command in this process, with its output captured as file descriptors."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def run(words: Sequence[str], folder: str) -> tuple[int, str, str]:
    """Return the exit code of a command, and what it wrote to stdout and to stderr."""
    from distlaunch import cli  # after an audit hook of the caller

    with (
        _inside(folder),
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            _redirected(out.fileno(), 1),
            _redirected(err.fileno(), 2),
        ):
            code = cli.main(words)
            out.flush()
            err.flush()
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


@contextlib.contextmanager
def _redirected(target: int, stream: int) -> Iterator[None]:
    before = os.dup(stream)
    os.dup2(target, stream)
    try:
        yield
    finally:
        os.dup2(before, stream)
        os.close(before)


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = os.getcwd()  # noqa: PTH109 - nothing else here needs pathlib
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
