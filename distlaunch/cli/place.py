"""Where commands look for jobs, from the options that say so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from distlaunch.console import Console
from distlaunch.google.find import Place

if TYPE_CHECKING:
    from distlaunch.cli import Settings
    from distlaunch.events import Level


def console(settings: Settings) -> Console:
    """Return the console that the global options ask for."""
    return Console(cast("Level", "error" if settings.quiet else settings.log_level))


def place(
    settings: Settings, endpoint: str | None, project: str | None, region: str | None
) -> Place:
    """Return where to look; waiting for Google is told on stderr."""
    return Place(Path.cwd(), endpoint, project, region, console(settings).say)
