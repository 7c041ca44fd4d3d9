"""What a registry's refusal means, and what a user can do about it."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import TYPE_CHECKING, Any

from distlaunch.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import requests

    from distlaunch.image.reference import Reference
    from distlaunch.image.registry.credentials import Credentials

_WRITER = "roles/artifactregistry.writer"
_READER = "roles/artifactregistry.reader"
_MOST_TOLD = 200  # characters of what a registry says


class Refused(ImageError):
    """A registry answered, but not with success.

    Parameters
    ----------
    status
        The HTTP status.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Unreachable(ImageError):
    """A registry gives no answer."""


def refused(
    response: requests.Response,
    reference: Reference,
    who: Credentials | None,
    *,
    pushing: bool,
    tries: int = 1,
) -> Refused:
    """Return what to tell of an answer that is no success.

    Parameters
    ----------
    reference
        The image that it was about.
    who
        Who we were to the registry.
    pushing
        Whether something was to be written.
    tries
        How often it was tried.
    """
    code, said = _said(response)
    status = response.status_code
    quoted = f" ({said})" if said else ""
    if status in (401, 403):
        text = denied(reference, who, quoted, pushing=pushing)
    elif status == 404 and (code == "NAME_UNKNOWN" or pushing):
        text = no_repository(reference, quoted)
    else:
        text = _failed(status, said, reference, quoted, tries)
    return Refused(text, status)


def unreachable(problem: Exception, reference: Reference, *, tries: int = 1) -> Unreachable:
    """Return what to tell of a registry that gives no answer.

    Parameters
    ----------
    problem
        What requests raised.
    """
    import requests
    from urllib3.exceptions import NameResolutionError

    host = reference.host
    causes = list(causes_of(problem))
    if _any(causes, NameResolutionError, socket.gaierror):
        text = f"the registry's host {host!r} is unknown; check the name in {reference}"
    elif _any(causes, ssl.SSLCertVerificationError):
        text = (
            f"the certificate of {host} is not trusted ({_reason(causes)}); set "
            "REQUESTS_CA_BUNDLE to a file with the certificate of the authority that signed it"
        )
    elif _any(causes, ssl.SSLError) and "wrong version" in str(problem).lower():
        text = (
            f"{host} speaks http and no https; a registry without TLS is used on localhost only, "
            f"so reach it there, as by 'ssh -L 5000:{host} …' and localhost:5000"
        )
    elif _any(causes, ssl.SSLError):
        text = f"no secure connection to {host} ({_reason(causes)}); check the registry's TLS"
    elif isinstance(problem, requests.exceptions.ProxyError):
        text = f"the proxy before {host} cannot be reached; check HTTPS_PROXY and NO_PROXY"
    elif _any(causes, ConnectionRefusedError):
        text = f"nothing listens at {host}; start the registry, or check the name in {reference}"
    elif isinstance(problem, requests.exceptions.Timeout):
        text = f"the registry {host} does not answer; check it and the network, then try again"
    else:
        times = f" {tries} times" if tries > 1 else ""
        text = f"the connection to {host} broke{times} ({_reason(causes)}); try again"
    return Unreachable(text)


def is_final(problem: Exception, *, answered: bool) -> bool:
    """Whether asking the same again can help nobody.

    Parameters
    ----------
    answered
        Whether the registry has answered before. If not, its address may well be wrong, and nobody
        is kept waiting.
    """
    import requests

    causes = list(causes_of(problem))
    if _any(causes, ssl.SSLCertVerificationError):
        return True
    at_first = (socket.gaierror, ConnectionRefusedError, ssl.SSLError)
    of_requests = (requests.exceptions.Timeout, requests.exceptions.ProxyError)
    return not answered and (_any(causes, *at_first) or isinstance(problem, of_requests))


def _said(response: requests.Response) -> tuple[str, str]:
    """Return the code and the words of an answer (OCI distribution spec, error codes)."""
    try:
        body: Any = response.json()
        first = body["errors"][0]
        code = str(first.get("code", ""))
        said = str(first.get("message") or code)
        detail = first.get("detail")
        if code == "UNKNOWN" and detail:
            said = f"{said}: {_innermost(detail)}"
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OSError):
        return "", ""
    return code, " ".join(said.split())[:_MOST_TOLD]


def _failed(status: int, said: str, reference: Reference, quoted: str, tries: int) -> str:
    host = reference.host
    times = f", {tries} times" if tries > 1 else ""
    if "no space left" in said.lower():
        return f"the disk of the registry {host} is full{quoted}; make room there"
    known = {
        404: f"there is no image {reference} in {host}{quoted}; check its name and tag",
        413: f"{host} takes no layer of this size{quoted}; put less into the image, "
        "or raise the limit of the proxy before the registry",
        429: f"{host} takes no more requests for now{quoted}{times}; "
        f"try again later, or run 'docker login {host}' for a higher limit",
        507: f"the disk of the registry {host} is full{quoted}; make room there",
    }
    if status in known:
        return known[status]
    if status >= 500:
        return f"the registry {host} fails with {status}{quoted}{times}; try again later"
    return f"{host} refuses {reference} with {status}{quoted}"


def _innermost(detail: Any) -> str:
    while isinstance(detail, dict) and detail:
        detail = detail.get("Err") or detail.get("message") or next(iter(detail.values()))
    return str(detail)


def denied(reference: Reference, who: Credentials | None, quoted: str, *, pushing: bool) -> str:
    """Return what to tell where a registry lets nobody in, or not us; `quoted` is what it says."""
    doing = "push" if pushing else "pull"
    head = f"{doing} of {reference.name} denied{quoted}"
    if reference.is_google and who is None:
        return f"{head}; run 'gcloud auth application-default login'"
    if reference.is_google:
        return f"{head}; run '{_grant(reference, who, _WRITER if pushing else _READER)}'"
    if who is None:
        return f"{head}; run 'docker login {reference.host}'"
    return (
        f"{head}; the credentials from {who.source} do not suffice, "
        f"run 'docker login {reference.host}' with others"
    )


def _grant(reference: Reference, who: Credentials | None, role: str) -> str:
    member = (who and who.member) or "user:$(gcloud config get account)"
    place = reference.google_place
    if place is None:
        project = reference.path.split("/")[0]
        return f"gcloud projects add-iam-policy-binding {project} --member={member} --role={role}"
    project, location, repository = place
    return (
        f"gcloud artifacts repositories add-iam-policy-binding {repository} "
        f"--project={project} --location={location} --member={member} --role={role}"
    )


def no_repository(reference: Reference, quoted: str) -> str:
    """Return what to tell where there is no such repository; `quoted` is what its registry says."""
    head = f"there is no repository {reference.name}{quoted}"
    place = reference.google_place
    if place is None:
        return f"{head}; make it in {reference.host}, or check the name"
    project, location, repository = place
    return (
        f"{head}; run 'gcloud artifacts repositories create {repository} "
        f"--repository-format=docker --project={project} --location={location}'"
    )


def causes_of(problem: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all that are behind it, however they were wrapped."""
    seen: set[int] = set()
    left: list[BaseException] = [problem]
    while left:
        each = left.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        inner = (each.__cause__, each.__context__, getattr(each, "reason", None), *each.args)
        left += [one for one in inner if isinstance(one, BaseException)]


def _any(causes: list[BaseException], *kinds: type[BaseException]) -> bool:
    return any(isinstance(each, kinds) for each in causes)


def _reason(causes: list[BaseException]) -> str:
    """Return the system's own words, from the innermost cause that has some."""
    for each in reversed(causes):
        if isinstance(each, ssl.SSLCertVerificationError):
            return each.verify_message.lower()
        if isinstance(each, ssl.SSLError) and each.reason:
            return each.reason.lower().replace("_", " ")
        if isinstance(each, OSError) and each.errno:
            return (each.strerror or errno.errorcode.get(each.errno, "")).lower()
    return (str(causes[-1]) or type(causes[-1]).__name__).lower()[:_MOST_TOLD]
