"""The repository that the job's image is pushed to, and who may pull from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.checks.cloud import project
from distlaunch.checks.cloud.context import unanswered
from distlaunch.checks.machines.alternatives import mainland
from distlaunch.checks.problem import error, warning
from distlaunch.errors import GoogleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distlaunch.checks.cloud.context import About
    from distlaunch.checks.problem import Problem
    from distlaunch.image.reference import GoogleRepository

_UPLOAD = "artifactregistry.repositories.uploadArtifacts"
_READER, _WRITER = "roles/artifactregistry.reader", "roles/artifactregistry.writer"
_AGENT = "service-{number}@gcp-sa-aiplatform.iam.gserviceaccount.com"
# Roles with artifactregistry.repositories.downloadArtifacts.
_PULLING = re.compile(
    r"roles/(artifactregistry\..+|owner|editor|viewer|aiplatform\.serviceAgent)"
    r"|(projects|organizations)/.+",  # the last are users' own, and may have it
)
_EVERYBODY = ("allUsers", "allAuthenticatedUsers")


def problems(about: About, place: GoogleRepository) -> Iterator[Problem]:
    """Yield that a repository is not there, is of another kind, or may not be pushed to."""
    refusal: GoogleError | None = None
    try:
        found = about.get("artifactregistry", _resource(place))
    except GoogleError as problem:
        if problem.status == 404:
            yield _missing(place)
            return
        refusal = problem
    else:
        yield from _kind(place, found)
    yield from _distance(about, place)
    if about.missing("artifactregistry", _resource(place), [_UPLOAD]):
        yield _denied(about, place)
    elif refusal is not None:
        grant = _grant(place, about.member, _READER)
        yield unanswered(str(place), refusal, grant=grant)


def pulling(about: About, place: GoogleRepository) -> Iterator[Problem]:
    """Yield that Vertex AI's own account, which pulls the images of all jobs, is let in nowhere.

    It is found in the policies of the project and of the repository; what an organisation or a
    group grants is not seen here.
    """
    is_own = place.project == about.asked.project
    try:
        number = project.number(about)
    except GoogleError:
        if is_own:
            return
        raise
    if number is None:
        return
    agent = _AGENT.format(number=number)
    answers = []
    for policy in (_of_project, _of_repository) if is_own else (_of_repository, _of_project):
        answer = _lets_in(policy, about, place, agent)
        if answer is True:
            return
        answers.append(answer)
    refusals = [each for each in answers if isinstance(each, GoogleError)]
    if not refusals:
        yield _cannot_pull(place, agent)
    elif not is_own:
        yield unanswered(f"who pulls from {place}", refusals[0])


def _resource(place: GoogleRepository) -> str:
    owner = quote(place.project, safe="")
    return f"projects/{owner}/locations/{place.location}/repositories/{place.repository}"


def _kind(place: GoogleRepository, found: Mapping[str, Any]) -> Iterator[Problem]:
    form = found.get("format", "DOCKER")
    mode = found.get("mode", "STANDARD_REPOSITORY")
    if form != "DOCKER":
        told = f"it is for {form} packages, and not for images"
    elif mode not in ("STANDARD_REPOSITORY", "MODE_UNSPECIFIED"):
        told = f"it is a {mode.lower().replace('_', ' ')}, which nothing can be pushed to"
    else:
        return
    other = place._replace(repository=f"{place.repository}-images")
    remedy = f"run '{_create(other)}' and say image.repository: {other}/NAME"
    yield error("repository-format", str(place), told, remedy)


def _distance(about: About, place: GoogleRepository) -> Iterator[Problem]:
    region = about.asked.region
    if region and mainland(region) != mainland(place.location):
        near = place._replace(location=region)
        yield warning(
            "repository-far",
            str(place),
            f"every machine in {region} pulls the image from {place.location}, which takes time "
            "and is billed",
            f"run '{_create(near)}' and say image.repository: {near}/NAME",
        )


def _missing(place: GoogleRepository) -> Problem:
    return error(
        "repository-missing", str(place), "there is no such repository", f"run '{_create(place)}'"
    )


def _create(place: GoogleRepository) -> str:
    return (
        f"gcloud artifacts repositories create {place.repository} --repository-format=docker "
        f"--project={place.project} --location={place.location}"
    )


def _grant(place: GoogleRepository, member: str, role: str) -> str:
    return (
        f"who may grant it runs 'gcloud artifacts repositories add-iam-policy-binding "
        f"{place.repository} --project={place.project} --location={place.location} "
        f"--member={member} --role={role}'"
    )


def _denied(about: About, place: GoogleRepository) -> Problem:
    told = f"{about.who} may not push there ({_UPLOAD} is missing)"
    return error("repository-denied", str(place), told, _grant(place, about.member, _WRITER))


def _cannot_pull(place: GoogleRepository, agent: str) -> Problem:
    told = f"Vertex AI's own account {agent} is not seen to be let in, and it pulls the images"
    remedy = _grant(place, f"serviceAccount:{agent}", _READER)
    return warning("agent-cannot-pull", str(place), told, remedy)


def _of_project(about: About, place: GoogleRepository) -> dict[str, Any]:
    resource = f"projects/{quote(place.project, safe='')}:getIamPolicy"
    body = {"options": {"requestedPolicyVersion": 3}}
    return about.post("cloudresourcemanager", resource, body)


def _of_repository(about: About, place: GoogleRepository) -> dict[str, Any]:
    params = {"options.requestedPolicyVersion": 3}
    return about.get("artifactregistry", f"{_resource(place)}:getIamPolicy", params=params)


def _lets_in(
    policy: Callable[[About, GoogleRepository], dict[str, Any]],
    about: About,
    place: GoogleRepository,
    agent: str,
) -> bool | GoogleError:
    """Return whether a policy gives the agent, or everybody, some role with the right to pull."""
    try:
        bindings = policy(about, place).get("bindings") or []
    except GoogleError as refusal:
        return refusal
    members = {f"serviceAccount:{agent}", *_EVERYBODY}
    return any(
        _PULLING.fullmatch(str(binding.get("role"))) and members & set(binding.get("members", ()))
        for binding in bindings
    )
