"""A job on this machine: one process a task, and none left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlaunch.local.run_spec import LocalOrder
    from distlaunch.local.runner import Outcome
    from distlaunch.ui.progress_view import ProgressView


def run(order: LocalOrder, watch: ProgressView) -> Outcome:
    """Run a job on this machine and return how it ended.

    Parameters
    ----------
    order
        What to run.
    watch
        Who shows what can be seen of it.

    Raises
    ------
    DistlaunchError
        If it cannot be run at all.
    BrokenPipeError
        If stdout is closed; the tasks have been stopped.
    OutputError
        If the output cannot be written; the tasks have been stopped, or have lost some of it.
    """
    # Imported here: the process that holds the tasks imports this package and needs none of it.
    from distlaunch.local.runner import Runner

    return Runner(order, watch).run()
