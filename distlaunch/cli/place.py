"""Where commands look for jobs, from the options that say so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.submit.lookup import JobLocator

if TYPE_CHECKING:
    from distlaunch.cli import Settings


def place(
    settings: Settings, endpoint: str | None, project: str | None, region: str | None
) -> JobLocator:
    """Return where to look; waiting for Google is told on stderr."""
    return JobLocator(Path.cwd(), endpoint, project, region, settings.console().log)
