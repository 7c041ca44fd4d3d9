"""Checks of a job in Google Cloud: project, permissions, bucket, repository, quotas, images.

They run at the same time with a common deadline. A check that fails is a warning, since the caller
may be allowed to submit a job and not to see all that it needs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from distlaunch.background import BackgroundTask
from distlaunch.checks.cloud import capacity, quota
from distlaunch.checks.cloud.context import (
    CloudContext,
    NotChecked,
    api_problems,
    billing_problems,
    no_credentials,
    not_checked,
    project_problems,
)
from distlaunch.checks.cloud.resources import (
    bucket,
    distance_problems,
    image_problems,
    named_images,
    pushed_image,
    repository,
    resource_problems,
    service_account,
    service_agent_problems,
    tracking_problems,
)
from distlaunch.errors import DistlaunchError
from distlaunch.job.vertex.view import job_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from distlaunch.checks.cloud.resources import Resource
    from distlaunch.checks.problem import Problem
    from distlaunch.engines.vertex.client import Session
    from distlaunch.image.reference import GoogleRepository
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.vertex.view import JobRequest

    Check = tuple[str, Callable[[], Iterable[Problem]]]
    """The location of a check, and the function that yields its problems."""

__all__ = ["no_credentials", "not_checked", "problems"]

TIMEOUT = 11.0  # seconds for all checks: enough for one call without a response in each

# Errors from JSON of an unexpected shape, such as that of a proxy.
_UNEXPECTED_JSON = (AttributeError, LookupError, TypeError, ValueError)
_PUBLIC = re.compile("cloud-aiplatform|deeplearning-platform-release|vertex-ai(-restricted)?")
"""Google's projects with public images."""


def problems(
    launch: LaunchRequest, request: JobRequest, session: Session, catalogue: Catalogue
) -> list[Problem]:
    """Return the problems of a job in the cloud; without project or region, those of the rest."""
    deadline = session.clock() + TIMEOUT
    refusal = _run([("google cloud", partial(_sign_in, session))], session, deadline)
    if refusal:
        return _grouped(refusal)
    context = CloudContext(launch, request, session, catalogue)
    return _grouped(_run(list(_checks(context)), session, deadline))


def _sign_in(session: Session) -> Iterable[Problem]:
    session.sign_in()
    return ()


def _checks(context: CloudContext) -> Iterator[Check]:
    request = context.request
    project = f"project {request.project}"
    pushed, named = pushed_image(context.launch.job), named_images(context)
    target = pushed.google_repository if pushed else None
    if request.project:
        is_own = target is not None and target.project == request.project
        yield project, partial(project_problems, context)
        yield f"the APIs of {project}", partial(api_problems, context, with_images=is_own)
        yield f"the billing of {project}", partial(billing_problems, context)
    if target:
        yield f"the distance to {target}", partial(distance_problems, context, target)
    for resource in _resources(context, target):
        yield resource.name, partial(resource_problems, context, resource)
    if request.project:
        images = [*named, pushed] if pushed else named
        for place in dict.fromkeys(image.google_repository for image in images):
            if place and not _PUBLIC.fullmatch(place.project):
                name = f"access of Vertex AI to {place}"
                yield name, partial(service_agent_problems, context, place)
    for tracker in _trackers(request):
        yield tracker, partial(tracking_problems, context, tracker)
    if request.project and request.region:
        yield from quota.checks(context)
        yield from _later_quotas(context)
    yield from capacity.checks(context)
    for image in named:
        yield str(image), partial(image_problems, context, image)


def _later_quotas(context: CloudContext) -> Iterator[Check]:
    """Yield the checks of quotas of the machines and regions that are tried later."""
    for choice in context.launch.choices[1:]:
        other = replace(context, launch=choice, request=job_request(choice))
        for name, check in quota.checks(other):
            yield name, partial(_as_warnings, check)


def _as_warnings(check: Callable[[], Iterable[Problem]]) -> Iterator[Problem]:
    """Yield problems as warnings."""
    for problem in check():
        yield replace(problem, severity="warning")


def _trackers(request: JobRequest) -> Iterator[str]:
    """Yield the TensorBoard and the experiment of a job that are in its region."""
    for name in (request.tensorboard, request.experiment):
        if name and request.region and f"/locations/{request.region}/" in name:
            yield name


def _resources(context: CloudContext, target: GoogleRepository | None) -> Iterator[Resource]:
    bucket_name = (context.launch.job_dir_of("ID") or "").removeprefix("gs://").partition("/")[0]
    if bucket_name:
        yield bucket(context, bucket_name)
    if target:
        yield repository(target)
    if context.request.service_account:
        yield service_account(context, context.request.service_account)


def _run(checks: list[Check], session: Session, deadline: float) -> list[Problem]:
    """Run checks at the same time, each on a thread that is abandoned after the deadline."""

    def result(location: str, task: BackgroundTask[list[Problem]]) -> list[Problem]:
        try:
            return task.result(max(0.0, deadline - session.clock()))
        except TimeoutError:
            silent = DistlaunchError(f"no response within {TIMEOUT:.0f} s")
            return [not_checked(location, silent)]

    tasks = [
        (location, BackgroundTask(partial(_collect, location, run))) for location, run in checks
    ]
    return [problem for location, task in tasks for problem in result(location, task)]


def _collect(location: str, run: Callable[[], Iterable[Problem]]) -> list[Problem]:
    problems: list[Problem] = []
    try:
        for problem in run():
            problems.append(problem)  # noqa: PERF402 - those before an error are kept
    except DistlaunchError as error:
        problems.append(not_checked(location, error))
    except _UNEXPECTED_JSON as error:
        unexpected = DistlaunchError(f"unexpected response ({error})")
        problems.append(not_checked(location, unexpected))
    return problems


def _grouped(problems: list[Problem]) -> list[Problem]:
    """Join failed checks with the same reason, without those that another problem explains."""
    is_project_missing = any(problem.code == "project-missing" for problem in problems)
    disabled = {problem.where for problem in problems if problem.code == "api-disabled"}
    groups: dict[tuple[str, ...], list[Problem]] = {}
    for problem in problems:
        location = problem.where
        if isinstance(problem, NotChecked):
            if is_project_missing or problem.disabled_api in disabled:
                continue
            location = ""
        key = (location, problem.code, problem.what, problem.remedy)
        groups.setdefault(key, []).append(problem)
    return [
        replace(group[0], where=", ".join(dict.fromkeys(each.where for each in group)))
        for group in groups.values()
    ]
