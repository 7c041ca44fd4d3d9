"""Remove old local runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch import timestamps
from distlaunch.errors import DistlaunchError, os_reason
from distlaunch.runs.record import RUNNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.runs.view import RunView


def runs_to_remove(
    runs: Sequence[RunView], *, keep: int, older_than: float | None
) -> list[RunView]:
    """Return the runs, given the newest first, that are not kept.

    Parameters
    ----------
    keep
        How many of the newest are kept.
    older_than
        Only runs that started before this time, in seconds since 1970; None for all.
    """
    old = [
        run
        for run in runs[keep:]
        if older_than is None or timestamps.parse_or(run.started, float("inf")) < older_than
    ]
    return [run for run in old if run.state != RUNNING]


def remove_run(run: RunView) -> None:
    """Remove a run's folder; DistlaunchError is raised if it cannot be."""
    folder = Path(str(run.folder))
    try:
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder)
    except OSError as error:
        raise DistlaunchError(f"{folder}: cannot be removed ({os_reason(error)})") from None
