"""A problem of a job, with a code that scripts can rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a job; the fields are the keys of ``check --json``.

    `code` stays the same from version to version; docs/check.md lists all. `severity` is ``error``
    where the job will fail. `where` is a key of the job file, a file and line
    (``trainer/data.py:12``), or a resource in the cloud. `what` is wrong, and `remedy` is how to
    fix it, with the exact command or link where there is one; one line each.
    """

    code: str
    severity: Severity
    where: str
    what: str
    remedy: str

    @property
    def line(self) -> str:
        """All of it except the code, in one line."""
        return f"{self.where}: {self.what}; {self.remedy}"


def error(code: str, where: str, what: str, remedy: str) -> Problem:
    """Return a problem that keeps a job from being submitted."""
    return Problem(code, "error", where, what, remedy)


def warning(code: str, where: str, what: str, remedy: str) -> Problem:
    """Return a problem that does not keep a job from being submitted."""
    return Problem(code, "warning", where, what, remedy)
