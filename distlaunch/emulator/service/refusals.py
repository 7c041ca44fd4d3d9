"""How Google words what faults ask for, and what a project lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.emulator.service.answers import Refused, error_info, help_link
from distlaunch.emulator.service.apis import api_of
from distlaunch.emulator.store import project_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.emulator.faults import Call, Fault
    from distlaunch.emulator.lacks import Lacks

_SAID = {
    404: "The requested resource was not found.",
    429: "Resource has been exhausted (e.g. check quota).",
    500: "Internal error encountered.",
    502: "Bad gateway.",
    503: "The service is currently unavailable.",
    504: "Deadline expired before operation could complete.",
}
_EXPIRED = (
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie "
    "or other valid authentication credential. See "
    "https://developers.google.com/identity/sign-in/web/devconsole-project."
)
_PERMISSIONS: Mapping[Call, str] = {
    "create": "aiplatform.customJobs.create",
    "get": "aiplatform.customJobs.get",
    "list": "aiplatform.customJobs.list",
    "cancel": "aiplatform.customJobs.cancel",
    "delete": "aiplatform.customJobs.delete",
    "logs": "logging.logEntries.list",
    "storage": "storage.objects.get",
    "services": "serviceusage.services.get",
    "quotas": "serviceusage.quotas.get",
    "billing": "resourcemanager.projects.get",
    "prices": "billing.resourceCosts.get",
    "permissions": "resourcemanager.projects.get",
    "accounts": "iam.serviceAccounts.get",
    "repository": "artifactregistry.repositories.get",
}
_JOB_CALLS = ("create", "get", "list", "cancel", "delete", "logs")


def refusal(fault: Fault, call: Call, project: str) -> Refused:
    """Return how Google words a fault that is an answer; ``quota`` and breaks are none of these."""
    if fault.name == "expired":
        info = error_info("ACCESS_TOKEN_EXPIRED", "googleapis.com", service=api_of(call))
        return Refused(401, _EXPIRED, details=[info])
    if fault.name == "denied":
        return denied(_PERMISSIONS[call], api_of(call), f"projects/{project}")
    if fault.name == "disabled":
        return _disabled(api_of(call), project)
    code = int(fault.name)
    headers = {"Retry-After": "1"} if code == 503 else {}
    return Refused(code, _SAID[code], headers=headers)


def lacking(lacks: Lacks, call: Call, project: str) -> Refused | None:
    """Return how Google refuses a call for what its project lacks, None where it does not."""
    api = api_of(call)
    if api in lacks:
        return _disabled(api, project)
    if "project" in lacks and project:
        return _no_project(api, project)
    if call in _JOB_CALLS and _PERMISSIONS[call] in lacks:
        return denied(_PERMISSIONS[call], api, f"projects/{project}")
    if call == "create" and "billing" in lacks:
        return _no_billing(api, project)
    return None


def denied(permission: str, service: str, resource: str) -> Refused:
    """Return the refusal of who lacks a permission on a resource of a service."""
    info = error_info(
        "IAM_PERMISSION_DENIED", service, permission=permission, resource=f"{service}/{resource}"
    )
    text = (
        f"Permission '{permission}' denied on resource '//{service}/{resource}' "
        "(or it may not exist)."
    )
    return Refused(403, text, details=[info])


def _disabled(service: str, project: str) -> Refused:
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


def _no_project(service: str, project: str) -> Refused:
    """Return what is said of a project that is not there, or that one may not see: the same."""
    if service == "cloudresourcemanager.googleapis.com":
        return denied("resourcemanager.projects.get", service, f"projects/{project}")
    info = error_info(
        "CONSUMER_INVALID",
        "googleapis.com",
        consumer=f"projects/{project}",
        containerInfo=project,
        service=service,
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
