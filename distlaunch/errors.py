"""Errors that the command line prints in one line each.

The tree, with exit codes::

    DistlaunchError          1: refused or failed
    ├── UsageError           2: invalid command line
    ├── OutputError          1: stdout cannot be written
    ├── JobFileError         1: a job file with one or more problems
    ├── ImageError           1: the container image cannot be built or pushed
    │   └── ContextError     1: files that cannot or must not be in the image
    └── EngineError          1: the place where jobs run refused a call, or cannot be reached
        ├── GoogleError      Google did
        │   ├── CreateRefused    the call to create a job was refused: no job exists
        │   ├── EmulatorStopped  the emulator has stopped, and its jobs with it
        │   └── RetryableError   the same call may succeed later
        └── SlurmError       a command of Slurm did
            ├── SlurmRefused     sbatch was refused: no job exists
            └── SlurmUnreachable the same command may succeed later

Every other exception is a bug in distlaunch.
"""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EXIT_ERROR, EXIT_USAGE, EXIT_JOB_FAILED, EXIT_INTERRUPTED = 1, 2, 3, 130
EXIT_CODES = {
    0: "success",
    EXIT_ERROR: "refused or failed, with a message",
    EXIT_USAGE: "usage error",
    EXIT_JOB_FAILED: "the job in the cloud or on Slurm ended without success",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C; a submitted job keeps running",
}
STOPPED_CODES = (129, EXIT_INTERRUPTED, 143)  # of a local run after SIGHUP, SIGINT and SIGTERM

SILENT = "TOKEN_SERVER_SILENT"  # the reason of a RetryableError
_READER_GONE = {errno.EPIPE, errno.EIO, errno.ECONNRESET}  # of a pipe, a terminal, a socket
if sys.platform == "win32":
    _READER_GONE |= {errno.EINVAL}  # of a pipe there


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What is wrong, how to fix it, and with what: each in lower case, without a period.

    `where` is a file with line and column, a setting, or a resource in the cloud.
    """

    what: str
    remedy: str = ""
    where: str = ""

    @property
    def line(self) -> str:
        """All of it in one line, for a person."""
        text = ": ".join(filter(None, (self.where, self.what)))
        return "; ".join(filter(None, (text, self.remedy)))


class DistlaunchError(Exception):
    """An error that a user can fix: one problem, or several; `where` … are those of the first."""

    exit_code = EXIT_ERROR

    def __init__(
        self,
        what: str = "",
        *,
        where: str = "",
        remedy: str = "",
        problems: Iterable[Diagnostic] = (),
        hint: str = "",  # a line after all problems
    ) -> None:
        self.hint = hint
        self.problems = tuple(problems) or (Diagnostic(what, remedy, where),)
        first = self.problems[0]
        self.where, self.what, self.remedy = first.where, first.what, first.remedy
        super().__init__(what)

    def __str__(self) -> str:
        return "; ".join(self.lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """The problems for a person, one line each."""
        return tuple(problem.line for problem in self.problems)


class UsageError(DistlaunchError):
    """An invalid command line."""

    exit_code = EXIT_USAGE


class OutputError(DistlaunchError):
    """Stdout cannot be written, for another reason than a closed reader."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"the output cannot be written ({os_reason(error)})")


class JobFileError(DistlaunchError):
    """A job file with problems."""


class ProjectError(DistlaunchError):
    """Code of a project that cannot run."""


class ImageError(DistlaunchError):
    """The container image cannot be built or pushed."""


class ContextError(ImageError):
    """Files that cannot or must not be in a container image."""


class EngineError(DistlaunchError):
    """The place where jobs run refused a call, or cannot be reached."""

    created_nothing = False  # whether it is certain that the call created no job

    def with_text(self, what: str) -> EngineError:
        """Return an error of the same kind with another text for the user."""
        return type(self)(what)


class SlurmError(EngineError):
    """A command of Slurm was refused, or cannot be run."""


class SlurmRefused(SlurmError):
    """Slurm refused to create a job."""

    created_nothing = True


class SlurmUnreachable(SlurmError):
    """Slurm's controller cannot be reached, or did not respond."""


class GoogleError(EngineError):
    """Google refused a call, or cannot be reached."""

    def __init__(
        self,
        what: str,
        *,
        remedy: str = "",
        status: int = 0,
        reason: str = "",
        error_reason: str = "",
        service: str = "",
    ) -> None:
        super().__init__(what, remedy=remedy)
        self.status = status  # of HTTP, 0 if there was no response
        self.reason = reason  # Google's status name, such as PERMISSION_DENIED
        self.error_reason = error_reason  # of an ErrorInfo, such as SERVICE_DISABLED
        self.service = service  # that it is about, such as storage.googleapis.com, if known

    def with_text(self, what: str) -> GoogleError:
        """Return an error of the same kind and reason with another text for the user."""
        kind = RetryableError if isinstance(self, RetryableError) else GoogleError
        return kind(what, status=self.status, reason=self.reason)


class CreateRefused(GoogleError):
    """Google refused to create a job, and no earlier call can have created it."""

    created_nothing = True

    @classmethod
    def from_error(cls, error: GoogleError) -> CreateRefused:
        """Return the error for a refused call."""
        names = ("remedy", "status", "reason", "error_reason", "service")
        return cls(error.what, **{name: getattr(error, name) for name in names})


class EmulatorStopped(GoogleError):
    """The emulator of a job has stopped, and the job with it."""


class RetryableError(GoogleError):
    """Google cannot be reached, or requests a retry after `wait` seconds (0 if it names none).

    `may_have_been_processed` is whether Google may have carried out the call.
    """

    def __init__(
        self,
        what: str,
        *,
        remedy: str = "",
        status: int = 0,
        reason: str = "",
        wait: float = 0.0,
        may_have_been_processed: bool = True,
    ) -> None:
        super().__init__(what, remedy=remedy, status=status, reason=reason)
        self.wait = wait
        self.may_have_been_processed = may_have_been_processed


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all that it wraps, in whatever way."""
    seen: set[int] = set()
    pending: list[BaseException] = [error]
    while pending:
        cause = pending.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        inner = (cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args)
        pending += [each for each in inner if isinstance(each, BaseException)]


def os_reason(error: OSError) -> str:
    """Return the system's reason for an error, such as ``permission denied``."""
    # Not strerror: the socket module adds the address to it.
    return os.strerror(error.errno).lower() if error.errno else str(error)


def output_error(error: OSError) -> BrokenPipeError | OutputError:
    """Return BrokenPipeError if the reader of the output is gone, OutputError otherwise."""
    if error.errno in _READER_GONE:
        return BrokenPipeError(*error.args)
    return OutputError(error)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` to append to a message, or nothing if no word is close."""
    from difflib import get_close_matches

    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""
