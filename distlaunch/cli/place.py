"""Where commands look for jobs, from the options that say so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.google.lookup import Place

if TYPE_CHECKING:
    from distlaunch.cli import Settings


def place(
    settings: Settings, endpoint: str | None, project: str | None, region: str | None
) -> Place:
    """Return where to look; waiting for Google is told on stderr."""
    return Place(Path.cwd(), endpoint, project, region, settings.console().say)
