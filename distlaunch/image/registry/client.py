"""The images of one repository in a registry."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import requests

from distlaunch.errors import ImageError
from distlaunch.image.registry import manifests
from distlaunch.image.registry.credentials import Credentials, find_credentials
from distlaunch.image.registry.errors import RegistryError
from distlaunch.image.registry.transport import (
    CHUNK,
    DEFAULT_POLICY,
    Blob,
    RetryPolicy,
    Transport,
    digest_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from typing_extensions import Self

    from distlaunch.image.reference import Reference

_NOT_MOUNTED = frozenset({400, 401, 403, 404, 405})


@dataclass(frozen=True, slots=True)
class RemoteImage:
    """An image for linux/amd64 in a registry, with its documents in Docker's or OCI's format."""

    digest: str  # sha256:… of its manifest
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]


class Registry:
    """The images of one repository; a context manager that keeps connections, shared by threads.

    The repository's tag or digest is the default of the methods.

    Raises
    ------
    ImageError
        By all methods, if the registry responds with an error or cannot be reached.
    """

    def __init__(
        self,
        repository: Reference,
        *,
        policy: RetryPolicy = DEFAULT_POLICY,
        credentials: Callable[[str], Credentials | None] = find_credentials,
    ) -> None:
        self.repository = repository
        self._transport = Transport(repository, policy, credentials)

    @property
    def bytes_sent(self) -> int:
        """Bytes of blobs and manifests sent so far."""
        return self._transport.bytes_sent

    def digest(self, identifier: str | None = None) -> str | None:
        """Return the digest of the image for linux/amd64, None if there is no such image."""
        identifier = identifier or self.repository.identifier
        try:
            response = self._transport.request(
                "head", f"manifests/{identifier}", headers=manifests.ACCEPT
            )
        except RegistryError as error:
            if error.status != requests.codes.not_found:
                raise
            return None
        digest = response.headers.get("Docker-Content-Digest")
        if digest is None or manifests.is_index({}, response.headers.get("Content-Type", "")):
            return self._manifest(identifier)[0]
        return digest

    def image(self, identifier: str | None = None) -> RemoteImage:
        """Return the image for linux/amd64 with its config, all digests verified."""
        digest, manifest = self._manifest(identifier or self.repository.identifier)
        manifests.check_manifest(manifest, self.repository)
        config_digest = manifest["config"]["digest"]
        data = self._transport.request("get", f"blobs/{config_digest}").content
        self._verify(config_digest, digest_of(data))
        config = manifests.parse(data, self.repository, "config")
        manifests.check_config(config, manifest, self.repository)
        return RemoteImage(digest, manifest, config)

    def blob(self, digest: str, size: int) -> Blob:
        """Return a blob of the repository, to read or to upload to another."""
        return Blob(digest, size, partial(self._chunks, digest))

    def mount(self, digest: str, source: Reference) -> bool:
        """Mount a blob from another repository of this registry; return whether that worked."""
        query = {"mount": digest, "from": source.path}
        try:
            response = self._transport.request("post", "blobs/uploads/", params=query)
        except RegistryError as error:
            if error.status not in _NOT_MOUNTED:
                raise
            return False
        return response.status_code == 201

    def upload(self, blob: Blob, on_progress: Callable[[int], None] = lambda _: None) -> None:
        """Upload a blob unless it exists; `on_progress` is called with the bytes sent so far."""
        self._transport.upload(blob, on_progress)

    def put_manifest(self, manifest: bytes, media_type: str, tag: str) -> str:
        """Create an image whose blobs exist; return its digest."""
        response = self._transport.request(
            "put", f"manifests/{tag}", data=manifest, headers={"Content-Type": media_type}
        )
        digest = digest_of(manifest)
        self._verify(response.headers.get("Docker-Content-Digest", digest), digest)
        return digest

    def cancel(self) -> None:
        """Make requests of other threads fail at their next chunk or retry."""
        self._transport.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.cancel()
        self._transport.close()

    def _chunks(self, digest: str) -> Iterator[bytes]:
        """Yield a blob's content; raise an error of requests if the connection breaks."""
        headers = {"Accept-Encoding": "identity"}
        content = hashlib.sha256()
        with self._transport.request(
            "get", f"blobs/{digest}", headers=headers, stream=True
        ) as response:
            for chunk in response.iter_content(CHUNK):
                content.update(chunk)
                yield chunk
        self._verify(digest, f"sha256:{content.hexdigest()}")

    def _manifest(self, identifier: str) -> tuple[str, Mapping[str, Any]]:
        """Return the manifest for linux/amd64 with its digest."""
        digest, document, media_type = self._document(identifier)
        if not manifests.is_index(document, media_type):
            return digest, document
        digest, document, _ = self._document(manifests.choose(document, self.repository))
        return digest, document

    def _document(self, identifier: str) -> tuple[str, dict[str, Any], str]:
        response = self._transport.request(
            "get", f"manifests/{identifier}", headers=manifests.ACCEPT
        )
        digest = digest_of(response.content)
        is_digest = identifier.startswith("sha256:")
        expected = identifier if is_digest else response.headers.get("Docker-Content-Digest")
        self._verify(expected or digest, digest)
        document = manifests.parse(response.content, self.repository, "manifest")
        return digest, document, response.headers.get("Content-Type", "")

    def _verify(self, expected: str, digest: str) -> None:
        if digest != expected:
            raise ImageError(
                f"content of {self.repository.host} has the digest {digest}, expected {expected}; "
                "check the registry and proxies, and push the image again"
            )
