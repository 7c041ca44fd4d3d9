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

    from distlaunch.emulator.faults import Call
    from distlaunch.emulator.lacks import Lacks
    from distlaunch.emulator.service.answers import Request

    Teller = Callable[..., dict[str, Any]]

_PROJECT = "projects/{project}"
_METRICS = f"/v1beta1/{_PROJECT}/services/{{service}}/consumerQuotaMetrics"
_ACCOUNT = f"/v1/{_PROJECT}/serviceAccounts/{{account}}"
_REPOSITORY = f"/v1/{_PROJECT}/locations/{{location}}/repositories/{{repository}}"


@dataclass(frozen=True, slots=True)
class _Way:
    call: Call
    method: str
    path: re.Pattern[str]
    tell: Teller


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
        way.call, "" if project == "-" else project, lambda _: Answer(way.tell(request, **parts))
    )


def _ways(projects: ProjectService, quotas: QuotaService, prices: PriceService) -> Iterator[_Way]:
    yield _way("services", f"GET /v1/{_PROJECT}/services:batchGet", projects.services)
    yield _way("services", f"GET /v1/{_PROJECT}/services/{{service}}", projects.service)
    yield _way("quotas", f"GET {_METRICS}", quotas.metrics)
    yield _way("quotas", f"GET {_METRICS}/{{metric}}", quotas.metric)
    yield _way("billing", f"GET /v1/{_PROJECT}/billingInfo", projects.billing)
    yield _way("prices", "GET /v1/services/{service}/skus", prices.skus)
    yield _way("permissions", f"GET /v3/{_PROJECT}", projects.project)
    yield _way(
        "permissions", f"POST /v3/{_PROJECT}:testIamPermissions", projects.project_permissions
    )
    yield _way("permissions", f"POST /v3/{_PROJECT}:getIamPolicy", projects.project_policy)
    yield _way("accounts", f"GET {_ACCOUNT}", projects.account)
    yield _way("accounts", f"POST {_ACCOUNT}:testIamPermissions", projects.account_permissions)
    yield _way("repository", f"GET {_REPOSITORY}", projects.repository)
    yield _way("repository", f"GET {_REPOSITORY}:getIamPolicy", projects.repository_policy)
    yield _way(
        "repository", f"POST {_REPOSITORY}:testIamPermissions", projects.repository_permissions
    )


def _way(call: Call, address: str, tell: Teller) -> _Way:
    """Return a way whose address is written as ``METHOD /PATH/{part}``."""
    method, path = address.split()
    pattern = re.sub(r"\{(\w+)\}", _part, re.escape(path).replace(r"\{", "{").replace(r"\}", "}"))
    return _Way(call, method, re.compile(pattern), tell)


def _part(found: re.Match[str]) -> str:
    """Return the pattern of a part of a path; a metric's name holds a slash, as an escape."""
    letters = "." if found[1] == "metric" else "[^/:]"
    return f"(?P<{found[1]}>{letters}+)"
