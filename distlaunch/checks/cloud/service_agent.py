"""Whether Vertex AI's service agent, which pulls the images of jobs, has access to a repository."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distlaunch.checks.cloud.context import not_checked
from distlaunch.checks.cloud.project import project_number
from distlaunch.checks.cloud.resources import bind_repository, repository_path
from distlaunch.checks.problem import warning
from distlaunch.errors import GoogleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.cloud.context import CloudContext
    from distlaunch.checks.problem import Problem
    from distlaunch.image.reference import GoogleRepository

_READER = "roles/artifactregistry.reader"
# Roles with artifactregistry.repositories.downloadArtifacts; custom roles may have it.
_ROLES_THAT_PULL = re.compile(
    r"roles/(artifactregistry\..+|owner|editor|viewer|aiplatform\.serviceAgent)"
    r"|(projects|organizations)/.+"
)
_EVERYONE = {"allUsers", "allAuthenticatedUsers"}
_POLICY = {"requestedPolicyVersion": 3}


def service_agent_problems(context: CloudContext, target: GoogleRepository) -> Iterator[Problem]:
    """Yield that neither the project nor the repository grants the service agent a role.

    Roles that an organisation or a group grants are not visible here.
    """
    is_own = target.project == context.request.project
    try:
        number = project_number(context)
    except GoogleError:
        if is_own:
            return  # a problem of the project
        raise
    if number is None:
        return
    agent = f"service-{number}@gcp-sa-aiplatform.iam.gserviceaccount.com"
    members = {f"serviceAccount:{agent}", *_EVERYONE}
    refusal = None
    for is_project in (True, False) if is_own else (False, True):
        try:
            policy = _policy(context, target, is_project=is_project)
        except GoogleError as problem:
            refusal = refusal or problem
            continue
        if any(
            _ROLES_THAT_PULL.fullmatch(str(binding.get("role")))
            and members & set(binding.get("members", ()))
            for binding in policy.get("bindings") or []
        ):
            return
    if refusal is None:
        message = f"Vertex AI's service agent {agent} has no visible access, and pulls the images"
        grant = context.grant(bind_repository(target), _READER, f"serviceAccount:{agent}")
        yield warning("agent-cannot-pull", str(target), message, grant)
    elif not is_own:
        yield not_checked(f"access of Vertex AI to {target}", refusal)


def _policy(context: CloudContext, target: GoogleRepository, *, is_project: bool) -> dict[str, Any]:
    if is_project:
        path = f"projects/{quote(target.project, safe='')}:getIamPolicy"
        return context.post("cloudresourcemanager", path, {"options": _POLICY})
    path = f"{repository_path(target)}:getIamPolicy"
    params = {f"options.{name}": value for name, value in _POLICY.items()}
    return context.get("artifactregistry", path, params=params)
