"""A problem of a job, with a code that scripts can rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from distlaunch.documentation import code_url
from distlaunch.errors import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem(Diagnostic):
    """One problem of a job; the fields are the keys of ``check --json``.

    `code` stays the same from version to version; docs/look-up/check-codes.md has all. `severity`
    is ``error`` where the job will fail. `where` is a key of the job file, a file and line
    (``trainer/data.py:12``), or a resource in the cloud.
    """

    code: str = ""
    severity: Severity = "error"

    def as_json(self) -> dict[str, str]:
        """Return it as plain data."""
        names = ("code", "severity", "where", "what", "remedy")
        return {name: getattr(self, name) for name in names} | {"url": code_url(self.code)}


def more_about(problems: Iterable[Problem]) -> str:
    """Return a line with the command that explains a problem: an error, and no placeholder."""
    first = min(problems, key=lambda each: (each.severity != "error", "placeholder" in each.code))
    return f"more about a problem: distlaunch docs {first.code}"


def error(code: str, where: str, what: str, remedy: str) -> Problem:
    """Return a problem that keeps a job from being submitted."""
    return Problem(what, remedy, where, code, "error")


def warning(code: str, where: str, what: str, remedy: str) -> Problem:
    """Return a problem that does not keep a job from being submitted."""
    return Problem(what, remedy, where, code, "warning")
