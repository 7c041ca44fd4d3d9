"""Errors of a registry, with their remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.errors import ImageError, causes_of
from distlaunch.image.reference import is_google

if TYPE_CHECKING:
    import requests

    from distlaunch.image.reference import Reference
    from distlaunch.image.registry.credentials import Credentials

_MAX_MESSAGE = 200  # characters of a registry's message

_STATUS_ERRORS = {
    404: "there is no image {image} in {host}{message}; check its name and tag",
    413: "{host} rejects a layer of this size{message}; put less into the image, or raise the "
    "limit of the proxy in front of the registry",
    429: "{host} limits the rate of requests{message}; try again later, or run "
    "'docker login {host}' for a higher limit",
}
# By a part of the exception's text; the first one counts.
_CONNECTION_ERRORS = {
    "ProxyError": "the proxy for {host} cannot be reached; check HTTPS_PROXY and NO_PROXY",
    "NameResolutionError": "the registry's host {host!r} is unknown; check the name in {image}",
    "CERTIFICATE_VERIFY_FAILED": "the certificate of {host} is not trusted ({reason}); set "
    "REQUESTS_CA_BUNDLE to a file with the certificate of the authority that signed it",
    "WRONG_VERSION_NUMBER": "{host} speaks http, not https; a registry without TLS is supported on "
    "localhost only, e.g. with 'ssh -L 5000:{host} …' and localhost:5000",
    "SSLError": "no TLS connection to {host} ({reason}); check the registry's TLS",
    "Connection refused": "no registry is listening at {host}; start it, or check the name in "
    "{image}",
    "timed out": "the registry {host} does not respond; check it and the network, then try again",
    "": "the connection to {host} broke ({reason}); try again",
}


class RegistryError(ImageError):
    """A registry responded with an error, an HTTP status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class RegistryUnreachable(ImageError):
    """A registry does not respond."""


def status_error(
    response: requests.Response,
    reference: Reference,
    credentials: Credentials | None,
    *,
    pushing: bool,
) -> RegistryError:
    """Return the error for an unsuccessful response to a request about an image."""
    code, message = _message(response)
    message = f" ({message})" if message else ""
    status, host = response.status_code, reference.host
    if status in (401, 403):
        text = denied(reference, credentials, message, pushing=pushing)
    elif status == 404 and (code == "NAME_UNKNOWN" or pushing):
        text = no_repository(reference, message)
    elif status in _STATUS_ERRORS:
        text = _STATUS_ERRORS[status].format(host=host, image=reference, message=message)
    elif status >= 500:
        text = f"the registry {host} fails with {status}{message}; try again later"
    else:
        text = f"{host} rejects {reference} with {status}{message}; check the name and the registry"
    return RegistryError(text, status)


def connection_error(problem: Exception, reference: Reference) -> RegistryUnreachable:
    """Return the error for an exception of requests."""
    *_, cause = causes_of(problem)
    reason = getattr(cause, "verify_message", "") or getattr(cause, "strerror", "") or str(cause)
    reason = (reason or type(cause).__name__).lower()[:_MAX_MESSAGE]
    text = next(text for part, text in _CONNECTION_ERRORS.items() if part in repr(problem))
    return RegistryUnreachable(text.format(host=reference.host, image=reference, reason=reason))


def denied(
    reference: Reference, credentials: Credentials | None, message: str, *, pushing: bool
) -> str:
    """Return the text for a request that is not allowed; `message` is the registry's, or empty."""
    head = f"{'push' if pushing else 'pull'} of {reference.name} denied{message}"
    if is_google(reference.host) and credentials is None:
        return f"{head}; run 'gcloud auth application-default login'"
    if is_google(reference.host):
        role = f"roles/artifactregistry.{'writer' if pushing else 'reader'}"
        return f"{head}; run '{_grant_command(reference, credentials, role)}'"
    if credentials is None:
        return f"{head}; run 'docker login {reference.host}'"
    return (
        f"{head}; the credentials from {credentials.source} do not suffice, "
        f"run 'docker login {reference.host}' with others"
    )


def _grant_command(reference: Reference, credentials: Credentials | None, role: str) -> str:
    member = (credentials and credentials.member) or "user:$(gcloud config get account)"
    location = reference.google_repository
    if location is None:
        project = reference.path.split("/")[0]
        return f"gcloud projects add-iam-policy-binding {project} --member={member} --role={role}"
    return (
        f"gcloud artifacts repositories add-iam-policy-binding {location.repository} "
        f"--project={location.project} --location={location.location} --member={member} "
        f"--role={role}"
    )


def no_repository(reference: Reference, message: str) -> str:
    """Return the text for a missing repository; `message` is the registry's, or empty."""
    head = f"there is no repository {reference.name}{message}"
    location = reference.google_repository
    if location is None:
        return f"{head}; create it in {reference.host}, or check the name"
    return (
        f"{head}; run 'gcloud artifacts repositories create {location.repository} "
        f"--repository-format=docker --project={location.project} "
        f"--location={location.location}'"
    )


def _message(response: requests.Response) -> tuple[str, str]:
    """Return the code and the message of an error response (OCI distribution spec)."""
    try:
        error: Any = response.json()["errors"][0]
        code = str(error.get("code", ""))
        message = str(error.get("message") or code)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OSError):
        return "", ""
    return code, " ".join(message.split())[:_MAX_MESSAGE]
