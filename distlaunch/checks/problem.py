"""What speaks against a job, with a code that scripts can rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that speaks against a job.

    Parameters
    ----------
    code
        Its name, which stays the same from version to version; docs/check.md lists them all.
    severity
        ``error`` where the job cannot come to a good end, ``warning`` where it may.
    where
        The place: a key of the job file (``cluster.workers.accelerator``), a file with its line
        (``trainer/data.py:12``), or what it is about in the cloud (``gs://my-bucket``).
    what
        What is wrong there, in one line.
    remedy
        What mends it, in one line, with the exact command or link where there is one.
    """

    code: str
    severity: Severity
    where: str
    what: str
    remedy: str

    @property
    def line(self) -> str:
        """All of it but the code, in one line."""
        return f"{self.where}: {self.what}; {self.remedy}"


def error(code: str, where: str, what: str, remedy: str) -> Problem:
    """Return a problem that a job cannot be submitted with."""
    return Problem(code, "error", where, what, remedy)


def warning(code: str, where: str, what: str, remedy: str) -> Problem:
    """Return a problem that a job may do well in spite of."""
    return Problem(code, "warning", where, what, remedy)
