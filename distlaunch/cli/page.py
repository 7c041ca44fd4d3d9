"""The options by which a command writes a page, and the writing."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from distlaunch import files, timestamps
from distlaunch.errors import DistlaunchError, UsageError, os_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.ui.console import Console
    from distlaunch.ui.page import Page

_Command = TypeVar("_Command", bound="Callable[..., Any]")

as_html = click.option(
    "--html", "as_html", is_flag=True, help="Write a page that needs no network, as one HTML file."
)


def output(default: str) -> Callable[[_Command], _Command]:
    """Return the option for the file of a page."""
    return click.option(
        "--output",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=f"Where --html writes (default: {default}).",
    )


def check_output(output: Path | None, *, as_html: bool) -> None:
    """Raise UsageError for a file without a page to write into it."""
    if output and not as_html:
        raise UsageError("--output is the file of a page: add --html")


def write_page(page: Page, path: Path, *, is_private: bool = False) -> str:
    """Write a page and return its address; DistlaunchError is raised if that fails."""
    from distlaunch.ui.page import render

    page = page if page.about else replace(page, about=_about_here())
    try:
        files.atomic_write(path, render(page), is_private=is_private)
    except OSError as error:
        what = f"the page cannot be written ({os_reason(error)})"
        raise DistlaunchError(what, where=str(path)) from None
    return path.absolute().as_uri()


def _about_here() -> dict[str, str]:
    """Return what a page has of the command that runs here and writes it."""
    from distlaunch.local.host_resources import this_machine
    from distlaunch.redaction import redact_words
    from distlaunch.runs.page import describe_versions
    from distlaunch.runs.record import installed_versions
    from distlaunch.source_version import commit_of, describe_commit, has_changes

    project = Path.cwd()
    return {
        "project": project.name,
        "date": timestamps.clock_time(timestamps.format(time.time())),
        "command": " ".join(["distlaunch", *redact_words(sys.argv[1:])]),
        "machine": this_machine({}).describe(),
        "versions": describe_versions(installed_versions()),
        "commit": describe_commit(commit_of(project), has_changes(project)),
    }


def log_page(console: Console, page: Page, path: Path, *, is_private: bool = False) -> None:
    """Write a page beside the result of a command, and log where it is or why there is none."""
    try:
        write_page(page, path, is_private=is_private)
        console.log(f"page: {files.display_path(path)}")
    except DistlaunchError as error:
        console.log(str(error), "warning")
