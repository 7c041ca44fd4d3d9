"""What is asked online, and what to say where nobody answers."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.checks.problem import Problem
from distlaunch.errors import GoogleError, RetryableError
from distlaunch.google import auth
from distlaunch.google.api_errors import CURRENT_ACCOUNT, DISABLED, NOT_CHARGED, NOT_PAID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from distlaunch.checks.request_view import JobRequest
    from distlaunch.errors import DistlaunchError
    from distlaunch.google.client import Params, Session
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.submit.plan import LaunchRequest

TIMEOUT = (3.0, 4.0)  # seconds: to connect, and between two bytes of the answer
CONSOLE = "https://console.cloud.google.com"

_SOON = 5.0  # seconds within which a call has to have failed to be tried once more
_DELAY = 0.5
_LONGEST_DELAY = 2.0
_NEVER_SAID = "try again in a while; the job may do well all the same"
_PAGES = 20
_NOT_A_ROLE = (DISABLED, NOT_CHARGED, NOT_PAID)  # why Google refuses, though nobody lacks a role


@dataclass(frozen=True, slots=True)
class Unanswered(Problem):
    """What is told of a question that was not answered.

    Parameters
    ----------
    why, service
        Google's word for the reason, and the API that it is about, where it refused.
    """

    why: str = ""
    service: str = ""

    @property
    def plain(self) -> Problem:
        """What is told, and no more."""
        return Problem(self.code, self.severity, self.where, self.what, self.remedy)


@dataclass(frozen=True, slots=True)
class About:
    """What the checks are about, and how they ask.

    Parameters
    ----------
    order
        What is to be launched.
    asked
        What it asks for.
    session
        What carries the calls.
    catalogue
        What there is to train on.
    """

    order: LaunchRequest
    asked: JobRequest
    session: Session
    catalogue: Catalogue

    @property
    def project(self) -> str:
        """The job's project, as it stands in a path."""
        return quote(self.asked.project, safe="")

    @property
    def member(self) -> str:
        """Who asks, as IAM writes it."""
        return auth.iam_member(self.session.credentials) or CURRENT_ACCOUNT

    @property
    def who(self) -> str:
        """Who asks, for a person."""
        return auth.iam_member(self.session.credentials) or "who runs this"

    def get(
        self,
        service: str,
        path: str,
        *,
        params: Params | None = None,
        region: str | None = None,
        version: str | None = None,
    ) -> dict[str, Any]:
        """Return what is told of something.

        Raises
        ------
        GoogleError
            If it is refused, or nobody answers.
        """
        return self._call("GET", service, path, params=params, region=region, version=version)

    def post(self, service: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a question that has a body.

        Raises
        ------
        GoogleError
            If it is refused, or nobody answers.
        """
        return self._call("POST", service, path, body=body)

    def pages(
        self, service: str, path: str, key: str, params: Params, *, region: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Go through a list, page by page.

        Parameters
        ----------
        key
            Under which a page has its part of the list.

        Raises
        ------
        GoogleError
            If it is refused, or nobody answers.
        """
        more: Params = params
        for _ in range(_PAGES):
            answer = self.get(service, path, params=more, region=region)
            yield from answer.get(key) or []
            if not answer.get("nextPageToken"):
                return
            more = {**params, "pageToken": answer["nextPageToken"]}

    def missing(self, service: str, resource: str, permissions: Collection[str]) -> list[str]:
        """Return those of some permissions on a resource that who asks does not hold.

        Raises
        ------
        GoogleError
            If it is refused, or nobody answers.
        """
        body = {"permissions": list(permissions)}
        answer = self.post(service, f"{resource}:testIamPermissions", body)
        return lacking(permissions, answer)

    def _call(self, method: str, service: str, path: str, **rest: Any) -> dict[str, Any]:
        """Ask, and once more where the first attempt failed soon and may do better."""
        session = self.session
        began = session.clock()
        try:
            return session.call(method, service, path, retry_deadline=0, timeout=TIMEOUT, **rest)
        except RetryableError as problem:
            is_slow = session.clock() - began > _SOON or problem.wait > _LONGEST_DELAY
            if is_slow or session.is_emulator_down(problem):
                raise
            session.sleep(max(problem.wait, _DELAY))
        return session.call(method, service, path, retry_deadline=0, timeout=TIMEOUT, **rest)


def lacking(permissions: Collection[str], answer: Mapping[str, Any]) -> list[str]:
    """Return those permissions that an answer to the question for them does not name."""
    held = answer.get("permissions") or ()
    return [each for each in permissions if each not in held]


def is_denied(refusal: GoogleError | None) -> bool:
    """Whether an answer is that to who lacks a role, or to all where a thing is not there."""
    return (
        refusal is not None
        and refusal.status == HTTPStatus.FORBIDDEN
        and refusal.error_reason not in _NOT_A_ROLE
    )


def unanswered(where: str, why: DistlaunchError | str, *, grant: str = "") -> Problem:
    """Return what to tell of a question that was not answered.

    Parameters
    ----------
    where
        What it was about.
    why
        What was said instead, with the remedy behind the last semicolon, if there is one.
    grant
        What gives the role that is lacking, where it is known better than by whoever refused.
    """
    if isinstance(why, GoogleError) and why.status == HTTPStatus.UNAUTHORIZED:
        return no_credentials(why)
    text, _, remedy = str(why).rpartition("; ")
    if not text:
        text, remedy = remedy, _NEVER_SAID
    reason, service = "", ""
    if isinstance(why, GoogleError):
        reason, service = why.error_reason, why.service
        remedy = grant if grant and is_denied(why) else remedy
    what = f"not checked: {text}"
    return Unanswered("unanswered", "warning", where, what, remedy, reason, service)


def no_credentials(why: GoogleError) -> Problem:
    """Return what to tell where nobody can be asked, for want of credentials."""
    text, _, remedy = str(why).rpartition("; ")
    what = f"nothing is asked of Google: {text or remedy}"
    remedy = remedy if text else _NEVER_SAID
    return Problem("no-credentials", "warning", "google cloud", what, remedy)
