"""A problem of a job, with a code that scripts can rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a job; the fields are the keys of ``check --json``.

    Parameters
    ----------
    code
        Stays the same from version to version; docs/check.md lists all codes.
    severity
        ``error`` where the job will fail, ``warning`` where it may succeed.
    where
        A key of the job file (``cluster.workers.accelerator``), a file and line
        (``trainer/data.py:12``), or a resource in the cloud (``gs://my-bucket``).
    what
        What is wrong, in one line.
    remedy
        How to fix it, in one line, with the exact command or link where there is one.
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
