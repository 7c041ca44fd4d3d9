"""What can go wrong, told in one line each.

The tree::

    DistlaunchError          exit code 1: refused or failed
    ├── UsageProblem         exit code 2: the command line asks for what cannot be
    ├── OutputError          exit code 1: stdout cannot be written
    ├── JobFileError         exit code 1: a job file with one or more problems
    ├── ImageError           exit code 1: the container image cannot be made or pushed
    │   └── ContextError     exit code 1: files that cannot or must not go into it
    └── GoogleError          exit code 1: Google refuses, or cannot be reached
        ├── CreateRefused    the call to create a job was refused: there is no job
        └── Unavailable      the same call may do better later

The command line prints these without a traceback; every other exception is a fault of ours.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


_READER_IS_GONE = (errno.EPIPE, errno.EIO, errno.ECONNRESET)  # of a pipe, a terminal, a socket


class DistlaunchError(Exception):
    """Something a user can mend; its text is one lower-case line that names place and remedy."""

    exit_code = 1

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines to show, one a problem."""
        return (str(self),)


class UsageProblem(DistlaunchError):
    """The command line asks for what cannot be."""

    exit_code = 2


class OutputError(DistlaunchError):
    """What is to be shown cannot be written, though its reader, if it has one, is still there.

    Parameters
    ----------
    problem
        What the system says.
    """

    def __init__(self, problem: OSError) -> None:
        why = (problem.strerror or str(problem)).lower()
        super().__init__(f"the output cannot be written ({why})")


class JobFileError(DistlaunchError):
    """A job file with problems.

    Parameters
    ----------
    problems
        One line each, as ``distlaunch.yaml:12:7: cluster.workers.count: expected …``.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))

    @property
    def lines(self) -> tuple[str, ...]:
        return self.problems


class ImageError(DistlaunchError):
    """The container image cannot be made or pushed."""


class ContextError(ImageError):
    """Files that cannot or must not go into a container image.

    Parameters
    ----------
    problems
        One line each, with the file's path and the remedy.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))

    @property
    def lines(self) -> tuple[str, ...]:
        return self.problems


class GoogleError(DistlaunchError):
    """Google refuses a call, or cannot be reached.

    Parameters
    ----------
    text
        The line for the user.
    status
        The HTTP status, 0 where there was no answer.
    reason
        Google's word for it, as ``PERMISSION_DENIED``.
    why
        Its narrower word, where it has one: the reason of an ErrorInfo, as ``SERVICE_DISABLED``.
    service
        The API that it is about, as ``storage.googleapis.com``, where that is known.
    """

    def __init__(
        self, text: str, *, status: int = 0, reason: str = "", why: str = "", service: str = ""
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.why = why
        self.service = service


class CreateRefused(GoogleError):
    """Google refused to create a job, and no earlier call can have created it."""


class Unavailable(GoogleError):
    """Google cannot be reached, or asks to come back later.

    Parameters
    ----------
    wait
        Seconds that it asks to wait, 0 where it doesn't say.
    heard
        Whether the call may have been carried out all the same.
    """

    def __init__(
        self,
        text: str,
        *,
        status: int = 0,
        reason: str = "",
        wait: float = 0.0,
        heard: bool = True,
    ) -> None:
        super().__init__(text, status=status, reason=reason)
        self.wait = wait
        self.heard = heard


def cannot_write(problem: OSError) -> BrokenPipeError | OutputError:
    """Return what an error of the system's says of the output: nobody reads it, or another."""
    if problem.errno in _READER_IS_GONE:
        return BrokenPipeError(*problem.args)
    return OutputError(problem)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` to end a message with, or nothing where no known word is near.

    Parameters
    ----------
    word
        What was written.
    known
        What could have been written.
    """
    from difflib import get_close_matches

    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""
