"""Who may do what: answers about permissions, and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.answers import Refused, invalid_payload
from distlaunch.emulator.store import project_number

if TYPE_CHECKING:
    from distlaunch.emulator.lacks import Lacks

_MOST = 100


def held(permissions: object, lacks: Lacks) -> dict[str, Any]:
    """Return the answer to ``testIamPermissions``: which of them the caller has.

    Raises
    ------
    Refused
        If they are no permissions.
    """
    asked = permissions or []
    if not isinstance(asked, list) or not all(isinstance(each, str) for each in asked):
        raise invalid_payload("Invalid value at 'permissions'", field="permissions")
    if len(asked) > _MOST or any("*" in each for each in asked):
        text = f"Up to {_MOST} permissions can be tested, each without a wildcard."
        raise Refused(400, text)
    found = [each for each in asked if each not in lacks]
    return {"permissions": found} if found else {}


def project_policy(project: str, lacks: Lacks) -> dict[str, Any]:
    """Return the policy of a project, in which Vertex AI's service agents have their role."""
    number = project_number(project)
    agents = [
        f"serviceAccount:service-{number}@gcp-sa-aiplatform{kind}.iam.gserviceaccount.com"
        for kind in ("", "-cc")
    ]
    bindings = [] if "agent" in lacks else [_binding("roles/aiplatform.serviceAgent", *agents)]
    return policy(*bindings, _binding("roles/owner", "user:owner@example.com"))


def policy(*bindings: dict[str, Any]) -> dict[str, Any]:
    """Return a policy as Google's JSON; one without bindings says nothing of them."""
    said: dict[str, Any] = {"version": 1, "etag": "BwYAAAAAAAA="}
    return {**said, "bindings": list(bindings)} if bindings else said


def _binding(role: str, *members: str) -> dict[str, Any]:
    return {"role": role, "members": list(members)}
