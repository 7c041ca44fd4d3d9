"""Remove local runs."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch import files, timestamps
from distlaunch.errors import DistlaunchError, os_reason
from distlaunch.local.run_folder import RunFolder
from distlaunch.runs.record import RUNNING
from distlaunch.runs.view import UNKNOWN, view_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.runs.view import RunView


def runs_to_remove(
    runs: Sequence[RunView], *, keep: int, older_than: float | None
) -> list[RunView]:
    """Return the runs, given the newest first, that are neither the newest `keep` nor running.

    `older_than` is in seconds since 1970. A run without a readable record is kept, as its age is
    unknown.
    """
    readable = [run for run in runs if run.state != UNKNOWN]
    return [
        run
        for run in readable[keep:]
        if run.state != RUNNING
        and (older_than is None or timestamps.parse_or(run.started, math.inf) < older_than)
    ]


def remove_run(project: Path, run: RunView) -> bool:
    """Remove a run's folder, and return whether it was still the run that was listed.

    DistlaunchError is raised if its folder cannot be removed, or is outside of the project.
    """
    folder = RunFolder(Path(str(run.folder)))
    try:
        files.make_folder(folder.task_logs, below=project)
        with files.lock(folder.lock_file, wait=False):
            view = view_run(folder)
            if (view.started, view.ended) != (run.started, run.ended):
                return False  # it was resumed, and has ended
            shutil.rmtree(folder.path)
    except BlockingIOError:
        return False  # it was resumed
    except OSError as error:
        raise DistlaunchError(f"{folder.path}: cannot be removed ({os_reason(error)})") from None
    return True
