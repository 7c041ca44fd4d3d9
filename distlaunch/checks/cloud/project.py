"""Whether the project is there, and what who asks may do in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.cloud.context import is_denied, unanswered
from distlaunch.checks.problem import error, warning
from distlaunch.errors import GoogleError
from distlaunch.job import vertex
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.cloud.context import About
    from distlaunch.checks.problem import Problem

_LOGS = "logging.logEntries.list"


def problems(about: About) -> Iterator[Problem]:
    """Yield that the project is not there, or which permissions are missing in it.

    Google gives the same answer for a project that is not there and for one that the caller may not
    see. It is only told as missing where no service knows more of it.
    """
    where = f"project {about.asked.project}"
    refusal = _refusal(about)
    if refusal is not None and refusal.status == 404:
        yield _missing(about)
        return
    wanted = [*_of_jobs(about), _LOGS]
    try:
        lacks = about.missing("cloudresourcemanager", f"projects/{about.project}", wanted)
    except GoogleError as second:
        is_hidden = is_denied(refusal) and is_denied(second) and _is_unknown(about)
        yield _missing(about) if is_hidden else unanswered(where, second)
        return
    if is_denied(refusal) and lacks == wanted and _is_unknown(about):
        yield _missing(about)
        return
    if refusal is not None:
        yield unanswered(where, refusal)
    yield from _permissions(about, lacks)


def number(about: About) -> str | None:
    """Return the project's number, None where Google does not name it.

    Raises
    ------
    GoogleError
        If it is refused, or nobody answers.
    """
    answer = about.get("cloudresourcemanager", f"projects/{about.project}")
    found = str(answer.get("name", "")).rpartition("/")[2]
    return found if found.isdecimal() else None


def _refusal(about: About) -> GoogleError | None:
    """Ask for the project, and return what is said against it."""
    try:
        found = about.get("cloudresourcemanager", f"projects/{about.project}")
    except GoogleError as refusal:
        return refusal
    if found.get("state", "ACTIVE") == "ACTIVE":
        return None
    return GoogleError("the project is about to be deleted", status=404)


def _is_unknown(about: About) -> bool:
    """Whether nothing is told of the project's services either."""
    try:
        about.get("serviceusage", f"projects/{about.project}/services/aiplatform.googleapis.com")
    except GoogleError as refusal:
        return refusal.status == 404 or is_denied(refusal)
    return False


def _missing(about: About) -> Problem:
    return error(
        "project-missing",
        f"project {about.asked.project}",
        f"it is not there, or {about.who} may not see it",
        "write the id of yours, as 'gcloud projects list' tells it, or run "
        "'gcloud auth application-default login' as who may",
    )


def _of_jobs(about: About) -> list[str]:
    kind = vertex.collection(about.order.job)
    return [f"aiplatform.{kind}.{verb}" for verb in ("create", "get", "list", "cancel")]


def _permissions(about: About, lacks: list[str]) -> Iterator[Problem]:
    where = f"project {about.asked.project}"
    of_jobs = [each for each in lacks if each != _LOGS]
    if of_jobs:
        told = f"{about.who} lacks {join_names(of_jobs)}"
        yield error("permission-missing", where, told, _grant(about, "roles/aiplatform.user"))
    if _LOGS in lacks:
        told = f"{about.who} lacks {_LOGS}, so the job's output cannot be shown"
        yield warning("permission-missing", where, told, _grant(about, "roles/logging.viewer"))


def _grant(about: About, role: str) -> str:
    return (
        f"who may grant it runs 'gcloud projects add-iam-policy-binding {about.asked.project} "
        f"--member={about.member} --role={role}'"
    )
