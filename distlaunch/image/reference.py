"""Image references: ``HOST/PATH[:TAG][@sha256:…]``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from distlaunch.errors import ImageError

PLATFORM = "linux/amd64"  # of images for Vertex AI's machines
DOCKER_HUB = "docker.io"

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?", re.ASCII)
_WORD = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*", re.ASCII)
_LOOPBACK = ("localhost", "[::1]")
_GOOGLE_DOMAINS = (".pkg.dev", ".gcr.io")


class GoogleRepository(NamedTuple):
    """A repository of Google's Artifact Registry, by the names of its API and gcloud."""

    project: str
    location: str
    repository: str

    def __str__(self) -> str:
        return f"{self.location}-docker.pkg.dev/{self.project.replace(':', '/')}/{self.repository}"


@dataclass(frozen=True, slots=True)
class Reference:
    """An image in a registry, by the grammar of github.com/distribution/reference."""

    name: str  # the repository as written, e.g. python, without default host and path
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Parse an image reference, or raise ImageError; ``str`` of the result is the same text."""
        rest, at, digest = text.partition("@")
        name, tag = _split_tag(rest)
        problem = _problem(name)
        if at and _DIGEST.fullmatch(digest) is None:
            problem = "a digest is 'sha256:' and 64 digits of 0-9a-f"
        elif tag is not None and _TAG.fullmatch(tag) is None:
            problem = "a tag is up to 128 letters, digits and '_', '.', '-'"
        if problem:
            raise ImageError(
                f"{text!r} is not an image reference: {problem}",
                remedy="expected HOST/PATH, HOST/PATH:TAG or HOST/PATH@sha256:…",
            )
        return cls(name, tag, digest if at else None)

    @property
    def host(self) -> str:
        """The registry, with its port if given; ``docker.io`` by default."""
        return _split_host(self.name)[0]

    @property
    def path(self) -> str:
        """The repository in its registry, e.g. ``library/python``."""
        host, path = _split_host(self.name)
        return f"library/{path}" if host == DOCKER_HUB and "/" not in path else path

    @property
    def identifier(self) -> str:
        """The digest, or else the tag, by default ``latest``."""
        return self.digest or self.tag or "latest"

    @property
    def google_repository(self) -> GoogleRepository | None:
        """Its repository of Artifact Registry, None if it is in another registry."""
        location, suffix, _ = self.host.partition("-docker.pkg.dev")
        parts = self.path.split("/")
        if not suffix or len(parts) < 2:
            return None
        if "." in parts[0] and len(parts) > 2:  # an organisation's project: example.com/PROJECT
            parts = [f"{parts[0]}:{parts[1]}", *parts[2:]]
        return GoogleRepository(parts[0], location, parts[1])

    def with_tag(self, tag: str) -> Reference:
        """Return the image of the same repository with a tag."""
        return self.parse(f"{self.name}:{tag}")

    def with_digest(self, digest: str) -> Reference:
        """Return the image of the same repository with a digest, without tag."""
        return replace(self, tag=None, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"


def is_google(host: str) -> bool:
    """Return whether a registry is Google's."""
    return host == "gcr.io" or host.endswith(_GOOGLE_DOMAINS)


def is_loopback(host: str) -> bool:
    """Return whether a host, with or without port, is this machine."""
    name = re.sub(r":[0-9]+$", "", host)
    return name in _LOOPBACK or re.fullmatch(r"127(\.[0-9]{1,3}){3}", name) is not None


def _split_tag(text: str) -> tuple[str, str | None]:
    """Split off a tag, which follows a colon and has no slash."""
    head, colon, last = text.rpartition(":")
    return (head, last) if colon and "/" not in last else (text, None)


def _split_host(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    is_host = "." in first or ":" in first or first == "localhost" or first != first.lower()
    if not slash or not is_host:
        return DOCKER_HUB, name
    return (DOCKER_HUB if first == "index.docker.io" else first), rest


def _problem(name: str) -> str | None:
    """Return what is wrong with a name, None if nothing is."""
    host, path = _split_host(name)
    if _HOST.fullmatch(host) is None:
        return f"{host!r} is not a host"
    if all(map(_WORD.fullmatch, path.split("/"))):
        return None
    lower = path.lower()
    if lower != path and all(map(_WORD.fullmatch, lower.split("/"))):
        return f"a repository is lower-case; did you mean {name.replace(path, lower)!r}?"
    return "a repository is words of a-z, 0-9 and single '.', '_', '-', separated by '/'"
