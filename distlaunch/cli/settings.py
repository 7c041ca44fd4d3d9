"""The global options, and the results of commands on stdout."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import click

from distlaunch.errors import UsageError, output_error

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.events import Level
    from distlaunch.text import Table
    from distlaunch.ui.console import Console


@dataclass(frozen=True)
class Settings:
    """The global options."""

    debug: bool = False
    quiet: bool = False
    log_level: str = "info"

    def console(self) -> Console:
        """Return a console that prints messages of the requested level."""
        from distlaunch.ui.console import Console

        return Console(cast("Level", "error" if self.quiet else self.log_level))

    def show_copy(self, file: Path, copy: Path) -> None:
        """Print that a file that is replaced was kept as a copy."""
        if not self.quiet:
            show(f"kept {file} as {copy}")


def draw(*parts: str | Table) -> None:
    """Print a result for a person on stdout, within the width of a terminal."""
    from distlaunch.ui.console import fitted

    for part in parts:
        _echo(fitted(part, 1))


def show_json(value: object) -> None:
    """Print a result for a program on stdout."""
    show(json.dumps(value, indent=2, ensure_ascii=False))


def show(line: str) -> None:
    """Print a result on stdout as it is; BrokenPipeError or OutputError is raised if that fails."""
    from distlaunch.ui.console import visible

    _echo(visible(line))


def _echo(line: str) -> None:
    try:
        click.echo(line)
    except OSError as error:
        raise output_error(error) from None


class Declined(click.Abort):
    """A prompt was answered with no."""


def confirm(question: str, purpose: str) -> None:
    """Ask on the terminal; raise Declined at no, or without one UsageError that names --yes."""
    if not sys.stdin.isatty():
        raise UsageError(f"pass --yes to {purpose}: there is no terminal for a prompt")
    if not click.confirm(question, err=True):
        raise Declined
