"""The options by which a command writes a page, and the writing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from distlaunch import files
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

    try:
        files.atomic_write(path, render(page), is_private=is_private)
    except OSError as error:
        what = f"the page cannot be written ({os_reason(error)})"
        raise DistlaunchError(what, where=str(path)) from None
    return path.absolute().as_uri()


def log_page(console: Console, page: Page, path: Path, *, is_private: bool = False) -> None:
    """Write a page beside the result of a command, and log where it is or why there is none."""
    try:
        write_page(page, path, is_private=is_private)
        console.log(f"page: {files.display_path(path)}")
    except DistlaunchError as error:
        console.log(str(error), "warning")
