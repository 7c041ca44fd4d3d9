"""What is answered about a project, by the addresses that Google has it at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.answers import Answer
from distlaunch.emulator.service.price_service import PriceService
from distlaunch.emulator.service.project_service import ProjectService
from distlaunch.emulator.service.quota_service import QuotaService
from distlaunch.emulator.service.route import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlaunch.emulator.lacks import Lacks
    from distlaunch.emulator.service.answers import Request
    from distlaunch.emulator.service.apis import Call

    Teller = Callable[..., dict[str, Any]]

_PROJECT = "/v1/projects/{project}"
_RESOURCE = "/v3/projects/{project}"
_METRICS = "/v1beta1/projects/{project}/services/{service}/consumerQuotaMetrics"
_ACCOUNT = f"{_PROJECT}/serviceAccounts/{{account}}"
_REPOSITORY = f"{_PROJECT}/locations/{{location}}/repositories/{{repository}}"
_TEST, _POLICY = "testIamPermissions", "getIamPolicy"
_SERVICES, _QUOTAS = "serviceusage.services.get", "serviceusage.quotas.get"
_RESOURCES, _REPOSITORIES = "resourcemanager.projects", "artifactregistry.repositories"


@dataclass(frozen=True, slots=True)
class _Way:
    call: Call
    method: str
    path: re.Pattern[str]
    tell: Teller
    needs: str


class ProjectRoutes:
    """The ways to what is told of a project.

    Parameters
    ----------
    lacks
        What the project lacks.
    """

    def __init__(self, lacks: Lacks) -> None:
        self._ways = tuple(_ways(ProjectService(lacks), QuotaService(lacks), PriceService()))

    def find(self, request: Request, path: str) -> Route | None:
        """Return where a request leads, None where it is about something else.

        Parameters
        ----------
        path
            The request's, without escapes.
        """
        for way in self._ways:
            found = way.path.fullmatch(path) if way.method == request.method else None
            if found is not None:
                return _route(way, request, found.groupdict())
        return None


def _route(way: _Way, request: Request, parts: dict[str, str]) -> Route:
    project = parts.get("project", "")
    return Route(
        way.call,
        "" if project == "-" else project,
        lambda _: Answer(way.tell(request, **parts)),
        way.needs,
    )


def _ways(projects: ProjectService, quotas: QuotaService, prices: PriceService) -> Iterator[_Way]:
    ways: tuple[tuple[Call, str, Teller, str], ...] = (
        ("services", f"GET {_PROJECT}/services:batchGet", projects.services, _SERVICES),
        ("services", f"GET {_PROJECT}/services/{{service}}", projects.service, _SERVICES),
        ("quotas", f"GET {_METRICS}", quotas.metrics, _QUOTAS),
        ("quotas", f"GET {_METRICS}/{{metric}}", quotas.metric, _QUOTAS),
        ("billing", f"GET {_PROJECT}/billingInfo", projects.billing, f"{_RESOURCES}.get"),
        ("prices", "GET /v1/services/{service}/skus", prices.skus, ""),
        ("permissions", f"GET {_RESOURCE}", projects.project, f"{_RESOURCES}.get"),
        ("permissions", f"POST {_RESOURCE}:{_TEST}", projects.project_permissions, ""),
        (
            "permissions",
            f"POST {_RESOURCE}:{_POLICY}",
            projects.project_policy,
            f"{_RESOURCES}.{_POLICY}",
        ),
        ("accounts", f"GET {_ACCOUNT}", projects.account, "iam.serviceAccounts.get"),
        ("accounts", f"POST {_ACCOUNT}:{_TEST}", projects.account_permissions, ""),
        ("repository", f"GET {_REPOSITORY}", projects.repository, f"{_REPOSITORIES}.get"),
        ("repository", f"POST {_REPOSITORY}:{_TEST}", projects.repository_permissions, ""),
        (
            "repository",
            f"GET {_REPOSITORY}:{_POLICY}",
            projects.repository_policy,
            f"{_REPOSITORIES}.{_POLICY}",
        ),
    )
    for call, address, tell, needs in ways:
        method, path = address.split()
        yield _Way(call, method, _pattern(path), tell, needs)


def _pattern(address: str) -> re.Pattern[str]:
    """Return what finds the parts of a path that stand in braces in its address."""
    plain = re.escape(address).replace(r"\{", "{").replace(r"\}", "}")
    return re.compile(re.sub(r"\{(\w+)\}", _part, plain))


def _part(found: re.Match[str]) -> str:
    """Return the pattern of a part of a path; a metric's name holds a slash, as an escape."""
    letters = "." if found[1] == "metric" else "[^/:]"
    return f"(?P<{found[1]}>{letters}+)"
