"""IAM policies of Google's resources: read, and changed without losing what others change.

A policy is written with the ``etag`` that it was read with. Google refuses it with 409 or 412 if
the policy has changed since; it is then read again (https://cloud.google.com/iam/docs/policies).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from distlaunch.errors import GoogleError
from distlaunch.retry import RETRY_DEADLINE, Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlaunch.engines.vertex.client import Session

_VERSION = 3  # with conditions, which a policy that is read as an older version would lose
_CONFLICTS = (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED)


def read_policy(call: Callable[..., dict[str, Any]], service: str, path: str) -> dict[str, Any]:
    """Return the policy of a resource; `call` is `Session.call`, or one with its parameters."""
    if service == "cloudresourcemanager":
        body = {"options": {"requestedPolicyVersion": _VERSION}}
        return call("POST", service, f"{path}:getIamPolicy", body=body)
    if service == "storage":
        params = {"optionsRequestedPolicyVersion": _VERSION}
        return call("GET", service, f"{path}/iam", params=params)
    params = {"options.requestedPolicyVersion": _VERSION}
    return call(
        "POST" if service == "iam" else "GET", service, f"{path}:getIamPolicy", params=params
    )


def has_role(policy: Mapping[str, Any], role: str, member: str) -> bool:
    """Whether a policy grants a role to a member without a condition."""
    return any(member in binding["members"] for binding in _bindings(policy, role))


def change_role(
    session: Session, service: str, path: str, role: str, member: str, *, is_granted: bool
) -> None:
    """Grant a role on a resource to a member, or revoke it; all else of the policy is kept."""
    backoff = Backoff(deadline=RETRY_DEADLINE, clock=session.clock)
    while True:
        policy = read_policy(session.call, service, path)
        if has_role(policy, role, member) == is_granted:
            return
        same = _bindings(policy, role) or [{"role": role, "members": []}]
        for binding in same:
            binding["members"] = [each for each in binding["members"] if each != member]
        same[0]["members"] += [member] if is_granted else []
        others = [each for each in policy.get("bindings") or [] if each not in same]
        policy["bindings"] = others + [each for each in same if each["members"]]
        method, end, body = "POST", ":setIamPolicy", {"policy": policy}
        if service == "storage":
            method, end, body = "PUT", "/iam", policy
        try:
            session.call(method, service, f"{path}{end}", body=body)
        except GoogleError as error:
            delay = backoff.next_delay() if error.status in _CONFLICTS else None
            if delay is None:
                raise
            session.sleep(delay)
        else:
            return


def _bindings(policy: Mapping[str, Any], role: str) -> list[dict[str, Any]]:
    """Return the bindings of a role that have no condition."""
    bindings = policy.get("bindings") or []
    return [each for each in bindings if each["role"] == role and not each.get("condition")]
