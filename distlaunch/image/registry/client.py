"""A repository of images, spoken to without any engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.errors import ImageError
from distlaunch.image.registry import blobs, manifests
from distlaunch.image.registry.credentials import Credentials, credentials
from distlaunch.image.registry.refusals import Refused
from distlaunch.image.registry.transport import PATIENT, Patience, Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from distlaunch.image.reference import Reference

_NOT_MOUNTED = frozenset({400, 401, 403, 404, 405})


@dataclass(frozen=True, slots=True)
class RemoteImage:
    """An image for linux/amd64 as a registry has it.

    Parameters
    ----------
    digest
        ``sha256:…`` of its manifest.
    manifest, config
        Both as plain data, in Docker's or OCI's words.
    """

    digest: str
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]


class Registry:
    """The images of one repository; a context manager that keeps its connections.

    Threads may share it.

    Parameters
    ----------
    repository
        A reference; its tag or digest is what is meant where a method is not told another.
    patience
        How long it is waited for.
    find
        Tells who we are to a host.
    """

    def __init__(
        self,
        repository: Reference,
        *,
        patience: Patience = PATIENT,
        find: Callable[[str], Credentials | None] = credentials,
    ) -> None:
        self.repository = repository
        self.transport = Transport(repository, patience=patience, find=find)

    @property
    def sent(self) -> int:
        """Bytes of blobs and manifests sent so far."""
        return self.transport.sent

    def digest(self, identifier: str | None = None) -> str | None:
        """Return the digest of the image for linux/amd64, None where there is no such image.

        Parameters
        ----------
        identifier
            A tag or a digest.

        Raises
        ------
        ImageError
            If the registry refuses or cannot be reached, or the image is for other machines.
        """
        which = identifier or self.repository.identifier
        try:
            response = self.transport.request(
                "head", f"manifests/{which}", headers=manifests.ACCEPT
            )
        except Refused as refusal:
            if refusal.status != 404:
                raise
            return None
        media_type = response.headers.get("Content-Type", "")
        digest = response.headers.get("Docker-Content-Digest")
        if digest is None or manifests.is_index({}, media_type):
            return self._manifest(which)[0]
        return digest

    def image(self, identifier: str | None = None) -> RemoteImage:
        """Return the image for linux/amd64 with its config; every digest is verified.

        Raises
        ------
        ImageError
            If there is no such image, it is for other machines, or the registry refuses or cannot
            be reached.
        """
        digest, manifest = self._manifest(identifier or self.repository.identifier)
        manifests.check_manifest(manifest, self.repository)
        about = manifest["config"]
        data = blobs.fetch(self.transport, about["digest"], about["size"])
        config = manifests.read(data, self.repository, "config")
        manifests.check_config(config, manifest, self.repository)
        return RemoteImage(digest, manifest, config)

    def has_blob(self, digest: str) -> bool:
        """Whether the repository has a blob."""
        return blobs.is_there(self.transport, digest)

    def blob(self, digest: str, size: int) -> blobs.Source:
        """Return a blob of the repository, to be read or to be sent to another."""
        return blobs.RemoteSource(self.transport, digest, size)

    def mount(self, digest: str, source: Reference) -> bool:
        """Take a blob over from another repository of the registry, where the registry does so."""
        from dxf.exceptions import DXFMountFailed

        try:
            self.transport.mount_blob(source.path, digest)
        except DXFMountFailed:
            return False
        except Refused as refusal:
            if refusal.status not in _NOT_MOUNTED:
                raise
            return False
        return True

    def send(self, source: blobs.Source, seen: Callable[[int], None] = lambda _: None) -> None:
        """Send a blob, whether or not it is there; `seen` is told of bytes as they go out."""
        blobs.upload(self.transport, source, seen)

    def put(self, manifest: bytes, media_type: str, tag: str) -> str:
        """Give the repository an image whose blobs it has; return its digest.

        Raises
        ------
        ImageError
            If the registry refuses or cannot be reached.
        """
        response = self.transport.request(
            "put", f"manifests/{tag}", data=manifest, headers={"Content-Type": media_type}
        )
        digest = blobs.digest_of(manifest)
        if response.headers.get("Docker-Content-Digest", digest) != digest:
            raise ImageError(
                f"{self.repository.host} took another manifest for {self.repository.name}:{tag} "
                "than was sent; check what stands between"
            )
        return digest

    def close(self) -> None:
        """Let the connections go."""
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.transport.abandon()
        self.close()

    def _manifest(self, which: str) -> tuple[str, Mapping[str, Any]]:
        """Return the manifest for linux/amd64 with its digest."""
        digest, document, media_type = self._document(which)
        if not manifests.is_index(document, media_type):
            return digest, document
        chosen = manifests.choose(document, self.repository)
        digest, document, _ = self._document(chosen)
        return digest, document

    def _document(self, which: str) -> tuple[str, dict[str, Any], str]:
        response = self.transport.request("get", f"manifests/{which}", headers=manifests.ACCEPT)
        digest = blobs.digest_of(response.content)
        told = (
            which if which.startswith("sha256:") else response.headers.get("Docker-Content-Digest")
        )
        if told not in (None, digest):
            raise ImageError(
                f"{self.repository.host} gave other bytes than those of {told}; "
                "push that image again"
            )
        document = manifests.read(response.content, self.repository, "manifest")
        return digest, document, response.headers.get("Content-Type", "")
