"""Events of a running job → what a person or a script sees."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from distlaunch.events import Notice, TaskChanged, TaskLines
from distlaunch.progress import Progress
from distlaunch.summary import describe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from distlaunch.console import Console
    from distlaunch.events import Event


class Watch:
    """Shows what happens to a job; its end waits for the readers, unless it is an interruption.

    Whoever runs it looks at `is_full` before it brings more lines, and calls `pump` when a slow
    reader has room again (a selector tells of `fileno`) and now and then, so that it gets what
    still waits for it.

    Parameters
    ----------
    console
        Where to show it.
    tasks
        The names of the job's tasks, the primary one first.
    """

    def __init__(self, console: Console, tasks: Sequence[str]) -> None:
        self._console = console
        self._primary = tasks[0]
        self._progress = Progress()
        self._summary: Mapping[str, object] | None = None
        width = max(map(len, tasks))
        self._prefixes = {
            task: console.prefix(task.ljust(width), number) for number, task in enumerate(tasks)
        }

    @property
    def is_full(self) -> bool:
        """Whether no more lines should be brought before `pump` has got rid of some."""
        return self._console.is_full

    def fileno(self) -> int:
        """Return the descriptor that is writable when a slow reader has room again."""
        return self._console.fileno()

    def see(self, event: Event) -> None:
        """Show an event.

        Raises
        ------
        BrokenPipeError
            If nobody reads the lines any more.
        OutputError
            If they cannot be written.
        """
        if isinstance(event, TaskLines):
            if event.text:
                self._console.lines(self._prefixes[event.task], event.text)
        elif isinstance(event, Notice):
            self._console.say(event.text, event.level)
        elif isinstance(event, TaskChanged):
            detail = f" ({event.detail})" if event.detail else ""
            self._console.say(f"{event.task} {event.state}{detail}", "debug")
        elif event.task == self._primary:
            self._console.progress(self._progress.see(event.event))
            summary = event.event.get("summary")
            if isinstance(summary, dict):
                self._summary = summary

    def result(self, text: str) -> None:
        """Show what was asked for.

        Raises
        ------
        BrokenPipeError
            If nobody reads it any more.
        OutputError
            If it cannot be written.
        """
        self._console.result(text)

    def pump(self) -> None:
        """Hand on what a slow reader has room for by now.

        Raises
        ------
        BrokenPipeError
            If nobody reads the lines any more.
        OutputError
            If they cannot be written.
        """
        self._console.pump()

    def finish(self, summary: Mapping[str, object] | None = None, *, logs: str = "") -> None:
        """Show how a job ended well.

        Parameters
        ----------
        summary
            What its program left behind in ``summary.json``, if that can be read here. Otherwise
            what its last event told of it is shown.
        logs
            Where the raw output of the tasks lies.

        Raises
        ------
        BrokenPipeError
            If nobody reads it any more.
        OutputError
            If it cannot be written.
        """
        self._console.progress("")
        summary = summary or self._summary
        if summary:
            self._console.result(describe(summary))
        else:
            self._console.say(f"done; the tasks' output lies in {logs}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the progress line away and hand on all that waits, however slow its reader is.

        Raises
        ------
        OutputError
            If it cannot be written, though somebody reads it.
        """
        if isinstance(problem, KeyboardInterrupt):
            return
        with suppress(BrokenPipeError):
            self._console.progress("")
            self._console.drain()
