"""What Google says of a job before it is submitted: whether it can be, and what is missing.

Each check asks on a thread of its own, and gives up in time. What is not answered is a warning: who
may submit a job may often not see everything that it takes.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from distlaunch.checks.cloud import account, apis, bucket, images, project, quota, repository
from distlaunch.checks.cloud.context import About, Unanswered, no_credentials, unanswered
from distlaunch.errors import DistlaunchError, GoogleError, RetryableError
from distlaunch.google.api_errors import DISABLED
from distlaunch.google.endpoints import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.google.client import Session
    from distlaunch.image.reference import GoogleRepository, Reference
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.submit.plan import LaunchRequest

    Check = tuple[str, Callable[[], Iterable[Problem]]]
    """What a check looks at, and what it finds."""

__all__ = ["no_credentials", "problems"]

PATIENCE = 11.0
"""Seconds that all checks have together: enough for one call of each that is never answered."""

_TOKEN = 8.0  # seconds that who gives a token may be silent

# What comes of JSON in which other things stand than Google says: a proxy's, or tomorrow's.
_ODD = (AttributeError, LookupError, TypeError, ValueError)
# Projects of Google's with images for everybody.
_OF_GOOGLE = (
    "cloud-aiplatform",
    "deeplearning-platform-release",
    "vertex-ai",
    "vertex-ai-restricted",
)


def problems(
    order: LaunchRequest, asked: JobRequest, session: Session, catalogue: Catalogue
) -> list[Problem]:
    """Return what speaks against a job in the cloud as it is now.

    Parameters
    ----------
    order
        What is to be launched.
    asked
        What it asks for; what needs a project or a region is left out where there is none.
    session
        What Google is asked through.
    catalogue
        What there is to train on.
    """
    until = session.clock() + PATIENCE
    about = About(order, asked, session, catalogue)
    first: list[Check] = [("google cloud", partial(_sign_in, session))]
    return _at_once(first, session, until) or _merged(
        _without_echoes(_at_once(list(_checks(about)), session, until))
    )


def _sign_in(session: Session) -> Iterator[Problem]:
    """Yield that nothing can be asked at all, if so."""
    try:
        session.sign_in(_TOKEN)
    except RetryableError as problem:
        yield unanswered("google cloud", problem)
    except GoogleError as problem:
        yield no_credentials(problem)


def _checks(about: About) -> Iterator[Check]:
    asked = about.asked
    where = f"project {asked.project}"
    pushed, named = images.pushed(about), images.named(about)
    target = pushed.google_repository if pushed else None
    is_own = target is not None and target.project == asked.project
    if asked.project:
        yield where, partial(project.problems, about)
        yield f"the APIs of {where}", partial(apis.problems, about, with_images=is_own)
        yield f"the billing of {where}", partial(apis.billing, about)
    name = bucket.name_of(about)
    if name:
        yield f"gs://{name}", partial(bucket.problems, about, name)
    if target:
        yield str(target), partial(repository.problems, about, target)
    if asked.service_account:
        yield asked.service_account, partial(account.problems, about, asked.service_account)
    if asked.project:
        for place in _pulled_from([*named, *([pushed] if pushed else [])]):
            yield f"who pulls from {place}", partial(repository.pulling, about, place)
    if asked.project and asked.region:
        yield from quota.checks(about)
    is_local = is_loopback(about.session.endpoint)
    for image in named:
        if image.is_loopback or not is_local:
            yield str(image), partial(images.problems, about, image)


def _pulled_from(references: Iterable[Reference]) -> list[GoogleRepository]:
    """Return the repositories of Artifact Registry that Vertex AI has to be let into."""
    places = filter(None, (reference.google_repository for reference in references))
    return [place for place in dict.fromkeys(places) if place.project not in _OF_GOOGLE]


def _at_once(checks: list[Check], session: Session, until: float) -> list[Problem]:
    """Do all checks at once, on threads that nobody waits for beyond their time."""
    done: SimpleQueue[tuple[int, list[Problem] | BaseException]] = SimpleQueue()
    for number, check in enumerate(checks):
        threading.Thread(target=_do, args=(number, check, done), daemon=True).start()
    found: dict[int, list[Problem]] = {}
    while len(found) < len(checks):
        try:
            number, result = done.get(timeout=max(0.0, until - session.clock()))
        except Empty:
            break
        if isinstance(result, BaseException):
            raise result
        found[number] = result
    late = f"no answer within {PATIENCE:.0f} seconds"
    given_up = [[unanswered(where, late)] for where, _ in checks]
    return [each for number, nothing in enumerate(given_up) for each in found.get(number, nothing)]


def _do(
    number: int, check: Check, done: SimpleQueue[tuple[int, list[Problem] | BaseException]]
) -> None:
    where, look = check
    found: list[Problem] = []
    try:
        for each in look():
            found.append(each)  # noqa: PERF402 - those before a refusal are kept
    except DistlaunchError as problem:
        found.append(unanswered(where, problem))
    except _ODD as problem:
        found.append(unanswered(where, f"the answer makes no sense ({problem})"))
    except BaseException as problem:  # noqa: BLE001 - it is raised where the results are waited for
        done.put((number, problem))
        return
    done.put((number, found))


def _without_echoes(problems: list[Problem]) -> list[Problem]:
    """Leave out what was not answered for want of an API or a project that is told of itself."""
    if any(each.code == "project-missing" for each in problems):
        return [each for each in problems if each.code != "unanswered"]
    told = {each.where for each in problems if each.code == "api-disabled"}
    return [each for each in problems if not _is_for_want_of(each, told)]


def _is_for_want_of(problem: Problem, apis: Collection[str]) -> bool:
    if not isinstance(problem, Unanswered):
        return False
    return problem.why == DISABLED and problem.service in apis


def _merged(problems: list[Problem]) -> list[Problem]:
    """Tell once what was not answered for the same reason."""
    merged: dict[Problem, Problem] = {}
    for problem in problems:
        each = problem.plain if isinstance(problem, Unanswered) else problem
        key = replace(each, where="") if each.code == "unanswered" else each
        before = merged.get(key, each)
        is_another = before.where != each.where
        merged[key] = replace(before, where=f"{before.where}, {each.where}") if is_another else each
    return list(merged.values())
