"""The APIs that a project can have, the kinds of calls, and the API that each kind is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Call = Literal[
    "create",
    "get",
    "list",
    "cancel",
    "delete",
    "logs",
    "storage",
    "services",
    "quotas",
    "billing",
    "prices",
    "permissions",
    "accounts",
    "repository",
]
CALLS: tuple[Call, ...] = get_args(Call)

APIS: Mapping[str, str] = {
    "aiplatform.googleapis.com": "Vertex AI API",
    "artifactregistry.googleapis.com": "Artifact Registry API",
    "cloudbilling.googleapis.com": "Cloud Billing API",
    "cloudbuild.googleapis.com": "Cloud Build API",
    "cloudresourcemanager.googleapis.com": "Cloud Resource Manager API",
    "compute.googleapis.com": "Compute Engine API",
    "iam.googleapis.com": "Identity and Access Management (IAM) API",
    "iamcredentials.googleapis.com": "IAM Service Account Credentials API",
    "logging.googleapis.com": "Cloud Logging API",
    "monitoring.googleapis.com": "Cloud Monitoring API",
    "serviceusage.googleapis.com": "Service Usage API",
    "storage.googleapis.com": "Cloud Storage API",
    "storage-api.googleapis.com": "Google Cloud Storage JSON API",
    "storage-component.googleapis.com": "Cloud Storage",
}
"""Each API's title by its name."""

_OTHERS: Mapping[Call, str] = {
    "logs": "logging",
    "storage": "storage",
    "services": "serviceusage",
    "quotas": "serviceusage",
    "billing": "cloudbilling",
    "prices": "cloudbilling",
    "permissions": "cloudresourcemanager",
    "accounts": "iam",
    "repository": "artifactregistry",
}


def api_of(call: Call) -> str:
    """Return the name of the API that a kind of call is of."""
    return f"{_OTHERS.get(call, 'aiplatform')}.googleapis.com"
