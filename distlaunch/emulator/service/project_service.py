"""A project and what belongs to it: its APIs, billing, policy, accounts and repositories.

https://cloud.google.com/service-usage/docs/reference/rest/v1/services,
https://cloud.google.com/billing/docs/reference/rest/v1/projects,
https://cloud.google.com/resource-manager/reference/rest/v3/projects,
https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts and
https://cloud.google.com/artifact-registry/docs/reference/rest/v1/projects.locations.repositories
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.answers import Refused, error_info
from distlaunch.emulator.service.apis import APIS
from distlaunch.emulator.service.policies import held, policy, project_policy
from distlaunch.emulator.store import project_number

if TYPE_CHECKING:
    from distlaunch.emulator.lacks import Lacks
    from distlaunch.emulator.service.answers import Request

MOST_SERVICES = 30

_MADE = "2026-01-01T00:00:00Z"
_ACCOUNT = re.compile(
    r"[a-z0-9-]+@((?P<project>[a-z0-9.-]+)\.iam|developer|appspot)\.gserviceaccount\.com"
)
_NUMBER = re.compile(r"\d+", re.ASCII)


class ProjectService:
    """Tells of any project that it is asked for, as if all were well with it.

    Parameters
    ----------
    lacks
        What is not well.
    """

    def __init__(self, lacks: Lacks) -> None:
        self._lacks = lacks
        self._ids: dict[str, str] = {}

    def services(self, request: Request, project: str) -> dict[str, Any]:
        """Tell which of some APIs are enabled.

        Raises
        ------
        Refused
            If it is asked for none, too many, or one that there is not.
        """
        names = request.repeated.get("names", [])
        if not 1 <= len(names) <= MOST_SERVICES:
            raise Refused(400, f"Between 1 and {MOST_SERVICES} service names are required.")
        return {"services": [self._service(project, name) for name in names]}

    def service(self, _: Request, project: str, service: str) -> dict[str, Any]:
        """Tell whether an API is enabled.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        return self._service(project, f"projects/{project}/services/{service}")

    def billing(self, _: Request, project: str) -> dict[str, Any]:
        """Tell whether a project has a billing account."""
        is_on = "billing" not in self._lacks
        return {
            "name": f"projects/{project}/billingInfo",
            "projectId": self._id(project),
            "billingAccountName": "billingAccounts/012345-567890-ABCDEF" if is_on else "",
            "billingEnabled": is_on,
        }

    def project(self, _: Request, project: str) -> dict[str, Any]:
        """Tell of a project, by its id or number."""
        return {
            "name": f"projects/{project_number(project)}",
            "parent": "organizations/100000000000",
            "projectId": self._id(project),
            "state": "ACTIVE",
            "displayName": self._id(project),
            "createTime": _MADE,
            "updateTime": _MADE,
            "etag": 'W/"0123456789abcdef"',
        }

    def project_permissions(self, request: Request, **_: str) -> dict[str, Any]:
        """Tell which permissions the caller has on a project."""
        return held(request.json().get("permissions"), self._lacks)

    def project_policy(self, request: Request, project: str) -> dict[str, Any]:
        """Tell who has which role on a project."""
        request.json()
        return project_policy(project, self._lacks)

    def account(self, _: Request, project: str, account: str) -> dict[str, Any]:
        """Tell of a service account.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        found = self._account(project, account)
        of = found["project"] or project
        return {
            "name": f"projects/{of}/serviceAccounts/{account}",
            "projectId": of,
            "uniqueId": project_number(account),
            "email": account,
            "displayName": account.partition("@")[0],
            "etag": "MDEwMjE5MjA=",
            "oauth2ClientId": project_number(account),
        }

    def account_permissions(self, request: Request, project: str, account: str) -> dict[str, Any]:
        """Tell which permissions the caller has on a service account.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        self._account(project, account)
        return held(request.json().get("permissions"), self._lacks)

    def repository(
        self, _: Request, project: str, location: str, repository: str
    ) -> dict[str, Any]:
        """Tell of a repository.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        self._check_repository()
        kind = self._lacks.repository_format
        host = f"{location}-{kind.lower()}.pkg.dev"
        return {
            "name": f"projects/{project}/locations/{location}/repositories/{repository}",
            "format": kind,
            "mode": "STANDARD_REPOSITORY",
            "createTime": _MADE,
            "updateTime": _MADE,
            "sizeBytes": "0",
            "registryUri": f"{host}/{project}/{repository}",
        }

    def repository_permissions(self, request: Request, **_: str) -> dict[str, Any]:
        """Tell which permissions the caller has on a repository.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        self._check_repository()
        return held(request.json().get("permissions"), self._lacks)

    def repository_policy(self, _: Request, **__: str) -> dict[str, Any]:
        """Tell who has which role on a repository alone: nobody.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        self._check_repository()
        return policy()

    def _service(self, project: str, name: str) -> dict[str, Any]:
        api = name.rpartition("/")[2]
        parent = f"projects/{project_number(project)}"
        if name.rpartition("/services/")[0] not in (f"projects/{project}", parent):
            raise Refused(400, f"The name {name!r} is not of the parent projects/{project}.")
        if api not in APIS:
            info = error_info("SERVICE_CONFIG_NOT_FOUND_OR_PERMISSION_DENIED", "googleapis.com")
            text = f"Not found or permission denied for service(s): {api}."
            raise Refused(403, text, details=[info])
        return {
            "name": f"{parent}/services/{api}",
            "config": {"name": api, "title": APIS[api]},
            "state": "DISABLED" if api in self._lacks else "ENABLED",
            "parent": parent,
        }

    def _id(self, project: str) -> str:
        """Return the id of a project, which is known of a number whose id was named before."""
        number = project_number(project)
        if not _NUMBER.fullmatch(project):
            self._ids[number] = project
        return self._ids.get(number, f"project-{number}")

    def _account(self, project: str, account: str) -> re.Match[str]:
        found = _ACCOUNT.fullmatch(account)
        if "account" in self._lacks or found is None:
            text = f"Service account projects/{project}/serviceAccounts/{account} does not exist."
            raise Refused(404, f"Unknown service account. {text}")
        return found

    def _check_repository(self) -> None:
        if "repository" in self._lacks:
            raise Refused(404, "Requested entity was not found.")
