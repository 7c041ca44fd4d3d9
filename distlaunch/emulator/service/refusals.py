"""How Google words what faults ask for, and what a project lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.emulator.service.answers import Refused, error_info, help_link
from distlaunch.emulator.service.apis import api_of
from distlaunch.emulator.service.buckets import StorageRefused
from distlaunch.emulator.store import project_number

if TYPE_CHECKING:
    from distlaunch.emulator.faults import Fault
    from distlaunch.emulator.lacks import Lacks
    from distlaunch.emulator.service.route import Route

_SAID = {
    404: "The requested resource was not found.",
    429: "Resource has been exhausted (e.g. check quota).",
    500: "Internal error encountered.",
    502: "Bad gateway.",
    503: "The service is currently unavailable.",
    504: "Deadline expired before operation could complete.",
}
_CALLERS = "my-project"  # nobody signs in here, so no credentials tell whose project it is
_EXPIRED = (
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie "
    "or other valid authentication credential. See "
    "https://developers.google.com/identity/sign-in/web/devconsole-project."
)


def refusal(fault: Fault, route: Route) -> Refused:
    """Return how Google words a fault that is an answer; ``quota`` and breaks are none of these."""
    api = api_of(route.call)
    if fault.name == "expired":
        info = error_info("ACCESS_TOKEN_EXPIRED", "googleapis.com", service=api)
        return Refused(401, _EXPIRED, details=[info])
    if fault.name == "denied":
        return _denied(route)
    if fault.name == "disabled":
        return _disabled(api, route)
    code = int(fault.name)
    headers = {"Retry-After": "1"} if code == 503 else {}
    return Refused(code, _SAID[code], headers=headers)


def lacking(lacks: Lacks, route: Route) -> Refused | None:
    """Return how Google refuses a call for what its project lacks, None where it does not."""
    api = api_of(route.call)
    if api in lacks:
        return _disabled(api, route)
    if "project" in lacks and route.project:
        return _no_project(route)
    if route.needs in lacks:
        return _denied(route)
    if route.call == "create" and "billing" in lacks:
        return _no_billing(api, route.project)
    return None


def _denied(route: Route) -> Refused:
    """Return the refusal of who lacks the permission that a call needs."""
    permission, api = route.needs, api_of(route.call)
    if not permission:
        return Refused(403, "The caller does not have permission")
    if route.call == "storage":
        text = (
            f"The caller does not have {permission} access to the Google Cloud Storage resource. "
            f"Permission '{permission}' denied on resource (or it may not exist)."
        )
        return StorageRefused(403, "forbidden", text)
    resource = f"{api}/projects/{route.project}"
    info = error_info("IAM_PERMISSION_DENIED", api, permission=permission, resource=resource)
    text = f"Permission '{permission}' denied on resource '//{resource}' (or it may not exist)."
    return Refused(403, text, details=[info])


def _disabled(service: str, route: Route) -> Refused:
    """Return the refusal of an API that is not enabled in the project that the call counts for.

    Where a path names none, as of a bucket, that is the caller's own, which Google tells by number.
    """
    project = route.project or project_number(_CALLERS)
    url = f"https://console.developers.google.com/apis/api/{service}/overview?project={project}"
    text = (
        f"{service} has not been used in project {project} before or it is disabled. "
        f"Enable it by visiting {url} then retry. If you enabled this API recently, wait a few "
        "minutes for the action to propagate to our systems and retry."
    )
    info = error_info(
        "SERVICE_DISABLED", "googleapis.com", service=service, consumer=f"projects/{project}"
    )
    link = help_link("Google developers console API activation", url)
    return Refused(403, text, details=[link, info])


def _no_project(route: Route) -> Refused:
    """Return what is said of a project that is not there, or that one may not see: the same."""
    if route.call == "permissions":
        return _denied(replace(route, needs="resourcemanager.projects.get"))
    project = route.project
    info = error_info(
        "CONSUMER_INVALID",
        "googleapis.com",
        consumer=f"projects/{project}",
        containerInfo=project,
        service=api_of(route.call),
    )
    return Refused(403, f"Permission denied on resource project {project}.", details=[info])


def _no_billing(service: str, project: str) -> Refused:
    number = project_number(project)
    url = f"https://console.developers.google.com/billing/enable?project={number}"
    text = (
        "This API method requires billing to be enabled. Please enable billing on project "
        f"#{number} by visiting {url} then retry. If you enabled billing for this project "
        "recently, wait a few minutes for the action to propagate to our systems and retry."
    )
    info = error_info(
        "BILLING_DISABLED", "googleapis.com", service=service, consumer=f"projects/{number}"
    )
    link = help_link("Google developers console billing", url)
    return Refused(403, text, details=[link, info])
