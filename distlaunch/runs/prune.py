"""Remove old local runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch import files, timestamps
from distlaunch.errors import DistlaunchError, os_reason
from distlaunch.runs.record import LOCK, RUNNING
from distlaunch.runs.view import UNKNOWN, view_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.runs.view import RunView


def runs_to_remove(
    runs: Sequence[RunView], *, keep: int, older_than: float | None
) -> list[RunView]:
    """Return the runs, given the newest first, that are not kept.

    A run without a readable record is kept, as its age is unknown.

    Parameters
    ----------
    keep
        How many of the newest are kept.
    older_than
        Only runs that started before this time, in seconds since 1970; None for all.
    """
    readable = [run for run in runs if run.state != UNKNOWN]
    old = [
        run
        for run in readable[keep:]
        if older_than is None or timestamps.parse_or(run.started, float("inf")) < older_than
    ]
    return [run for run in old if run.state != RUNNING]


def remove_run(project: Path, run: RunView) -> bool:
    """Remove a run's folder, and return whether it was still the run that was listed.

    Raises
    ------
    DistlaunchError
        If its folder cannot be removed, or is outside of the project.
    """
    folder = Path(str(run.folder))
    lock = folder / LOCK
    try:
        files.make_folder(lock.parent, below=project)
        with files.lock(lock, wait=False):
            view = view_run(folder)
            if (view.started, view.ended) != (run.started, run.ended):
                return False  # it was resumed, and has ended
            shutil.rmtree(folder)
    except BlockingIOError:
        return False  # it was resumed
    except OSError as error:
        raise DistlaunchError(f"{folder}: cannot be removed ({os_reason(error)})") from None
    return True
