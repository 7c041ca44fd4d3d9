"""Why a container engine does not do what it is asked to, and what a user can do about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distlaunch.errors import ImageError
from distlaunch.image.registry.refusals import causes_of

if TYPE_CHECKING:
    from distlaunch.image.reference import Reference

_LONGEST = 300  # characters of what an engine says
_START = "start Docker ('sudo systemctl start docker', or Docker Desktop)"
_NO_SPACE = "no space left on device"
_FAILED_RUN = re.compile(r"The command '(.*)' returned a non-zero code: (\d+)", re.DOTALL)


class NoEngineError(ImageError):
    """No container engine answers."""


def no_engine(problem: BaseException, address: str) -> NoEngineError:
    """Return what to tell where no engine answers.

    Parameters
    ----------
    problem
        What docker-py raised; what the system said is somewhere behind it.
    address
        Where an engine was looked for.
    """
    kinds = {type(each) for each in causes_of(problem)}
    names = {kind.__name__ for kind in kinds}
    if FileNotFoundError in kinds:
        text = f"there is no container engine at {address}; {_START}, or set DOCKER_HOST"
    elif ConnectionRefusedError in kinds:
        text = f"no container engine listens at {address}; {_START}, or set DOCKER_HOST"
    elif PermissionError in kinds:
        text = (
            f"no permission on the container engine's socket {address}; "
            "run 'sudo usermod -aG docker $USER' and log in again"
        )
    elif "gaierror" in names:
        text = f"the container engine's host in {address} is unknown; check DOCKER_HOST"
    elif names & {"ReadTimeout", "ConnectTimeout", "ReadTimeoutError", "ConnectTimeoutError"}:
        text = f"the container engine at {address} does not answer; restart it"
    elif "SSLError" in names:
        text = (
            f"no secure connection to the container engine at {address} ({said(problem)}); "
            "check DOCKER_CERT_PATH and DOCKER_TLS_VERIFY"
        )
    else:
        text = f"no container engine can be used at {address} ({said(problem)}); check DOCKER_HOST"
    return NoEngineError(text)


def lost_engine(problem: BaseException) -> ImageError:
    """Return what to tell where an engine stops answering in the middle of something."""
    kinds = {type(each).__name__ for each in causes_of(problem)}
    if kinds & {"ReadTimeout", "ReadTimeoutError", "TimeoutError"}:
        return ImageError(
            "the container engine has said nothing for minutes; look at the network between it "
            "and the registry, then try again"
        )
    return ImageError(f"the connection to the container engine broke ({said(problem)}); try again")


def failed_build(text: str, step: str) -> ImageError:
    """Return what to tell of a build that failed.

    Parameters
    ----------
    text
        What the engine says.
    step
        The step that failed, as ``step 3 of 5: RUN make``.
    """
    found = _FAILED_RUN.search(text)
    if found:
        return ImageError(f"{step} failed with exit code {found[2]}; its last lines stand above")
    if _NO_SPACE in text:
        return ImageError(f"{step}: {disk_is_full()}")
    where = f"{step}: " if step else ""
    return ImageError(f"the image cannot be built: {where}{shortened(text)}")


def not_reached(text: str, reference: Reference, doing: str) -> ImageError:
    """Return what to tell where an engine can neither push nor pull.

    What `is_denied` and `is_unknown` recognise is told in the words of `refusals`.

    Parameters
    ----------
    text
        What the engine says.
    doing
        ``push`` or ``pull``.
    """
    lower = text.lower()
    if _NO_SPACE in lower:
        return ImageError(disk_is_full())
    if "not found" in lower or "manifest unknown" in lower:
        return ImageError(f"there is no image {reference} ({shortened(text)}); check its name")
    return ImageError(
        f"the container engine cannot {doing} {reference} ({shortened(text)}); "
        f"{_reaching(lower, reference)}"
    )


def is_denied(text: str) -> bool:
    """Whether a registry did not let an engine in."""
    words = ("denied", "unauthorized", "authentication required", "no basic auth", "forbidden")
    return any(word in text.lower() for word in words)


def is_unknown(text: str) -> bool:
    """Whether a registry has no such repository."""
    lower = text.lower()
    return "name unknown" in lower or ("repository" in lower and "not found" in lower)


def disk_is_full() -> str:
    """Say that an engine has no room left."""
    return "the container engine's disk is full; make room with 'docker system prune'"


def _reaching(lower: str, reference: Reference) -> str:
    """Say what to do where an engine does not reach a registry."""
    host = reference.host
    if "http response to https client" in lower:
        return (
            f"it speaks https to all but localhost: add {host} to insecure-registries in its "
            "daemon.json"
        )
    if "x509" in lower or "certificate" in lower:
        return f"put the registry's certificate into /etc/docker/certs.d/{host}/ca.crt"
    if "toomanyrequests" in lower or "rate limit" in lower:
        return f"run 'docker login {host}' for a higher limit, or try again later"
    reasons = ("no such host", "connection refused", "timeout", "unreachable", "eof", "deadline")
    if any(reason in lower for reason in reasons):
        return f"see that it reaches {host} (its network and proxy are its own), then try again"
    return "try again, or try docker's own command for it"


def said(problem: BaseException) -> str:
    """Return the words of the innermost cause."""
    *_, innermost = causes_of(problem)
    return shortened(str(innermost) or type(innermost).__name__)


def shortened(text: str) -> str:
    """Return a text in one line, and not too long a one."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
