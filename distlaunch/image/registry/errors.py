"""Errors of a registry, with their remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.engines.vertex.api_errors import proxy_error
from distlaunch.engines.vertex.auth import login_remedy
from distlaunch.errors import Diagnostic, ImageError
from distlaunch.image.reference import Reference, is_google
from distlaunch.image.registry import RegistryUnreachable
from distlaunch.refusals import CURRENT_ACCOUNT, find_remedy, grant, more_calls

if TYPE_CHECKING:
    import requests

    from distlaunch.image.registry.credentials import Credentials


_MAX_MESSAGE = 600  # characters of a registry's message
# Where Artifact Registry has the images of hosts that were Container Registry's.
_LOCATIONS = {"gcr.io": "us", "us.gcr.io": "us", "eu.gcr.io": "europe", "asia.gcr.io": "asia"}

_STATUS_ERRORS = {
    404: ("there is no image {image} in {host}{message}", "check its name and tag"),
    413: (
        "{host} rejects a layer of this size{message}",
        "put less into the image, or raise the limit of the proxy in front of the registry",
    ),
    429: (
        "{host} limits the rate of requests{message}",
        "try again later, or run 'docker login {host}' for a higher limit",
    ),
}
_ON_LOCALHOST = (
    "a registry without TLS is supported on localhost only, e.g. with 'ssh -L 5000:{host} …' and "
    "localhost:5000"
)
# By a part of the exception's text; the first one counts.
_CONNECTION_ERRORS = {
    "ProxyError": ("the proxy for {host} cannot be reached", "check HTTPS_PROXY and NO_PROXY"),
    "NameResolutionError": (
        "the registry's host {host!r} is unknown",
        "check the name in {image}",
    ),
    "CERTIFICATE_VERIFY_FAILED": (
        "the certificate of {host} is not trusted ({reason})",
        "set REQUESTS_CA_BUNDLE to a file with the certificate of the authority that signed it",
    ),
    "WRONG_VERSION_NUMBER": (
        "{host} speaks http, not https",
        _ON_LOCALHOST,
    ),
    "SSLError": ("no TLS connection to {host} ({reason})", "check the registry's TLS"),
    "Connection refused": (
        "no registry is listening at {host}",
        "start it, or check the name in {image}",
    ),
    "timed out": (
        "the registry {host} does not respond",
        "check it and the network, then try again",
    ),
    "": ("the connection to {host} broke ({reason})", "try again"),
}


class RegistryError(ImageError):
    """A registry responded with an error, an HTTP status."""

    def __init__(self, problem: Diagnostic, status: int) -> None:
        super().__init__(problems=[problem])
        self.status = status


def status_error(
    response: requests.Response,
    reference: Reference,
    credentials: Credentials | None,
    *,
    pushing: bool,
) -> RegistryError:
    """Return the error for an unsuccessful response to a request about an image."""
    code, reason = registry_message(response)
    message = f" ({reason})" if reason else ""
    status, host = response.status_code, reference.host
    if page := proxy_page(response, reference, host):
        problem = page
    elif status == 412 and host in _LOCATIONS:
        problem = denied(reference, credentials, "Container Registry has ended", pushing=pushing)
    elif status in (401, 403) or has_remedy(reference, reason):
        problem = denied(reference, credentials, reason, pushing=pushing)
    elif status == 429 and is_google(host):
        problem = quota_exceeded(reference, message)
    elif status == 404 and (code == "NAME_UNKNOWN" or pushing):
        problem = no_repository(reference, message)
    elif status in _STATUS_ERRORS:
        problem = _filled(_STATUS_ERRORS[status], host=host, image=reference, message=message)
    elif status >= 500:
        what = f"the registry {host} fails with {status}{message}"
        problem = Diagnostic(what, "try again later")
    else:
        what = f"{host} rejects {reference} with {status}{message}"
        problem = Diagnostic(what, "check the name and the registry")
    return RegistryError(problem, status)


def _filled(templates: tuple[str, str], **values: object) -> Diagnostic:
    what, remedy = (template.format(**values) for template in templates)
    return Diagnostic(what, remedy)


def proxy_page(response: requests.Response, reference: Reference, host: str) -> Diagnostic | None:
    """Return the problem of a proxy's page in place of a host of Google's, None for all else."""
    text = f"{host} answers {response.status_code}"
    return proxy_error(text, response.content) if is_google(reference.host) else None


def connection_error(problem: Exception, reference: Reference) -> RegistryUnreachable:
    """Return the error for an exception of requests."""
    cause: Any = problem  # not its context, which may be an earlier error, e.g. of Docker's socket
    while inner := [
        each for each in (*cause.args, getattr(cause, "reason", 0)) if isinstance(each, Exception)
    ]:
        cause = inner[0]
    reason = getattr(cause, "verify_message", "") or getattr(cause, "strerror", "") or str(cause)
    reason = (reason or type(cause).__name__).lower()[:_MAX_MESSAGE]
    pair = next(pair for part, pair in _CONNECTION_ERRORS.items() if part in repr(problem))
    filled = _filled(pair, host=reference.host, image=reference, reason=reason)
    return RegistryUnreachable(problems=[filled])


def denied(
    reference: Reference, credentials: Credentials | None, message: str, *, pushing: bool
) -> Diagnostic:
    """Return why a request is not allowed; `message` is the registry's, or empty."""
    quoted = f" ({message})" if message else ""
    head = f"{'push' if pushing else 'pull'} of {reference.name} denied{quoted}"
    if is_google(reference.host):
        page = proxy_error(f"{reference.host} answers", message.encode())
        remedy = _google_remedy(reference, credentials, message, pushing=pushing)
        return page or Diagnostic(head, remedy)
    if credentials is None:
        from distlaunch.docker_client import docker_login

        return Diagnostic(head, docker_login(reference.host))
    source = f"the credentials from {credentials.source} do not suffice"
    return Diagnostic(head, f"{source}, run 'docker login {reference.host}' with others")


def has_remedy(reference: Reference, message: str) -> bool:
    """Whether a message of a registry is one of Google's reasons."""
    return is_google(reference.host) and find_remedy(message) is not None


def _google_remedy(
    reference: Reference, credentials: Credentials | None, message: str, *, pushing: bool
) -> str:
    values = {
        "service": "artifactregistry.googleapis.com",
        "project": _project(reference),
        "member": (credentials and credentials.member) or CURRENT_ACCOUNT,
        "host": reference.host,
        "location": _LOCATIONS.get(reference.host, ""),
    }
    if remedy := find_remedy(message, values=values):
        return remedy.text
    if credentials is None:
        return login_remedy()
    role = f"roles/artifactregistry.{'writer' if pushing else 'reader'}"
    return grant(_bind_command(reference), values["member"], role)


def quota_exceeded(reference: Reference, message: str) -> Diagnostic:
    """Return that there were too many requests; `message` is the registry's, or empty."""
    what = f"the quota of requests to {reference.host} is exceeded{message}"
    return Diagnostic(what, more_calls(_project(reference)))


def _project(reference: Reference) -> str:
    """Return the project of one of Google's repositories."""
    location = reference.google_repository
    return location.project if location else reference.path.split("/")[0]


def _bind_command(reference: Reference) -> str:
    location = reference.google_repository
    if location is None:
        return f"projects add-iam-policy-binding {_project(reference)}"
    return (
        f"artifacts repositories add-iam-policy-binding {location.repository} "
        f"--project={location.project} --location={location.location}"
    )


def no_repository(reference: Reference, message: str) -> Diagnostic:
    """Return that a repository is missing; `message` is the registry's, or empty."""
    location = reference.google_repository
    remedy = f"create it in {reference.host}, or check the name"
    if location is not None:
        remedy = (
            f"run 'gcloud artifacts repositories create {location.repository} "
            f"--repository-format=docker --project={location.project} "
            f"--location={location.location}'"
        )
    return Diagnostic(f"there is no repository {reference.name}{message}", remedy)


def registry_message(response: requests.Response) -> tuple[str, str]:
    """Return the code and the message of an error response (OCI distribution spec)."""
    try:
        error: Any = response.json()["errors"][0]
        code = str(error.get("code", ""))
        message = str(error.get("message") or code)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OSError):
        return "", ""
    return code, " ".join(message.split())[:_MAX_MESSAGE]
