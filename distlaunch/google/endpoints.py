"""The URLs of Google's services."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from distlaunch.errors import UsageError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

# The host of each service, and the path before that of a call, which ends with the version.
_SERVICES = {
    "aiplatform": ("{region}-aiplatform.googleapis.com", "/v1/"),
    "artifactregistry": ("artifactregistry.googleapis.com", "/v1/"),
    "cloudbilling": ("cloudbilling.googleapis.com", "/v1/"),
    "cloudresourcemanager": ("cloudresourcemanager.googleapis.com", "/v3/"),
    "iam": ("iam.googleapis.com", "/v1/"),
    "logging": ("logging.googleapis.com", "/v2/"),
    "serviceusage": ("serviceusage.googleapis.com", "/v1/"),
    "storage": ("storage.googleapis.com", "/storage/v1/"),
}
_REGION = re.compile(
    r"[a-z]+(-[a-z]+)*[0-9]*", re.ASCII
)  # becomes part of a host that gets a token
_LOOPBACK = re.compile(r"localhost|127\.[0-9]+\.[0-9]+\.[0-9]+|::1", re.ASCII)


def service_url(
    service: str,
    path: str,
    *,
    region: str | None = None,
    endpoint: str | None = None,
    version: str | None = None,
) -> str:
    """Return the URL of a call: its path is the part after the version.

    An `endpoint` replaces Google's hosts, and a `version` such as ``v1beta1`` the default one.
    """
    host, prefix = _SERVICES[service]
    if version is not None:
        prefix = f"{prefix[:-1].rpartition('/')[0]}/{version}/"
    if endpoint is not None:
        return f"{endpoint}{prefix}{path}"
    if "{region}" in host and _REGION.fullmatch(region or "") is None:
        raise UsageError(f"{region!r} is not a region; expected one such as us-central1")
    return f"https://{host.format(region=region)}{prefix}{path}"


def normalise_endpoint(endpoint: str) -> str:
    """Return an endpoint without a trailing slash."""
    parts = _split(endpoint)
    if parts is None or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(
            f"--endpoint {endpoint}: not a URL; expected one such as http://127.0.0.1:8085"
        )
    if parts.scheme == "https" or is_loopback(endpoint):
        return endpoint.rstrip("/")
    raise UsageError(
        f"--endpoint {endpoint}: expected https://, or http:// on this machine (127.0.0.1), "
        "because credentials are sent there"
    )


def is_loopback(endpoint: str | None) -> bool:
    """Whether an endpoint is plain HTTP on this machine, which gets no credentials."""
    parts = _split(endpoint or "")
    if parts is None:
        return False
    return parts.scheme == "http" and _LOOPBACK.fullmatch(parts.hostname or "") is not None


def _split(endpoint: str) -> SplitResult | None:
    try:
        parts = urlsplit(endpoint)
        parts.port  # noqa: B018 - raises ValueError if it is not a number
    except ValueError:
        return None
    return parts if parts.hostname else None
