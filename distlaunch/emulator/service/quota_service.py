"""Service Usage's ``consumerQuotaMetrics`` of Vertex AI's training.

https://cloud.google.com/service-usage/docs/reference/rest/v1beta1/services.consumerQuotaMetrics
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from distlaunch.emulator.service.answers import Refused
from distlaunch.emulator.service.machine_rules import LOCATIONS
from distlaunch.emulator.service.pages import page
from distlaunch.emulator.service.quotas import METRICS, PREFIX
from distlaunch.emulator.store import project_number

if TYPE_CHECKING:
    from distlaunch.emulator.lacks import Lacks
    from distlaunch.emulator.service.answers import Request

USUAL_LIMIT = 1_000
"""What is allowed of each metric in each region, where nothing else was asked for."""

_SERVICE = "aiplatform.googleapis.com"
_ON_A_PAGE = 30
_OTHERS = ("online_prediction_requests_per_base_model", "custom_model_serving_cpus")
_NAMES = (*(PREFIX + each for each in METRICS), *(f"{_SERVICE}/{each}" for each in _OTHERS))


class QuotaService:
    """Tells what is allowed of each metric.

    Parameters
    ----------
    lacks
        Whose limits are told for every region, beside the usual one.
    """

    def __init__(self, lacks: Lacks) -> None:
        self._lacks = lacks

    def metrics(self, request: Request, project: str, service: str) -> dict[str, Any]:
        """Tell of all metrics of a service, page by page; of others than Vertex AI there are none.

        Raises
        ------
        Refused
            If the page cannot be.
        """
        names = sorted(_NAMES) if service == _SERVICE else []
        metrics = [self._metric(project, name) for name in names]
        return page("metrics", metrics, request.options, usual=_ON_A_PAGE, most=_ON_A_PAGE)

    def metric(self, _: Request, project: str, service: str, metric: str) -> dict[str, Any]:
        """Tell of a metric.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        name = unquote(metric)
        if service != _SERVICE or name not in _NAMES:
            raise Refused(404, f"Quota metric '{name}' not found for service '{service}'.")
        return self._metric(project, name)

    def _metric(self, project: str, metric: str) -> dict[str, Any]:
        parent = f"projects/{project_number(project)}/services/{_SERVICE}"
        name = f"{parent}/consumerQuotaMetrics/{quote(metric, safe='')}"
        short = metric.partition("/")[2]
        limit = {
            "name": f"{name}/limits/%2Fproject%2Fregion",
            "metric": metric,
            "unit": "1/{project}/{region}",
            "isPrecise": True,
            "allowsAdminOverrides": True,
            "quotaBuckets": self._buckets(metric),
            "supportedLocations": sorted(LOCATIONS),
        }
        return {
            "name": name,
            "metric": metric,
            "displayName": short.replace("_", " ").capitalize(),
            "unit": "1",
            "consumerQuotaLimits": [limit],
        }

    def _buckets(self, metric: str) -> list[dict[str, Any]]:
        """Return what is allowed, the least specific first; a limit asked for is of each region."""
        usual = {"effectiveLimit": str(USUAL_LIMIT), "defaultLimit": str(USUAL_LIMIT)}
        limit = self._lacks.limit(metric.removeprefix(PREFIX))
        if limit is None:
            return [usual]
        return [usual] + [
            {
                "effectiveLimit": str(limit),
                "defaultLimit": str(USUAL_LIMIT),
                "dimensions": {"region": region},
            }
            for region in sorted(LOCATIONS)
        ]
