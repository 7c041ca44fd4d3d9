"""The images of a repository in a registry, and images that are made of them without Docker."""

from __future__ import annotations

import hashlib
import json
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import requests

from distlaunch.errors import ImageError
from distlaunch.image.registry import manifests
from distlaunch.image.registry.errors import RegistryError
from distlaunch.image.registry.manifests import ImageSettings, extend_config
from distlaunch.image.registry.transport import (
    CHUNK,
    DEFAULT_POLICY,
    THREADS,
    Blob,
    RetryPolicy,
    Transport,
    digest_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from distlaunch.image.layers import Layer
    from distlaunch.image.reference import Reference


@dataclass(frozen=True, slots=True)
class RemoteImage:
    """An image for linux/amd64 in a registry, with its documents in Docker's or OCI's format."""

    digest: str  # sha256:… of its manifest
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]


class Registry(Transport):
    """The images of one repository; a context manager that keeps connections, shared by threads.

    The repository's tag or digest is the default of the methods. All of them raise ImageError if
    the registry responds with an error or cannot be reached.
    """

    def __init__(self, repository: Reference, policy: RetryPolicy = DEFAULT_POLICY) -> None:
        super().__init__(repository, policy)
        self.repository = repository

    def digest(self, identifier: str | None = None) -> str | None:
        """Return the digest of the image for linux/amd64, None if there is no such image."""
        identifier = identifier or self.repository.identifier
        try:
            response = self.request("head", f"manifests/{identifier}", headers=manifests.ACCEPT)
        except RegistryError as error:
            if error.status != requests.codes.not_found:
                raise
            return None
        digest = response.headers.get("Docker-Content-Digest")
        if digest is None or manifests.is_index({}, response.headers.get("Content-Type", "")):
            return self._manifest(identifier)[0]
        return digest

    def image(self) -> RemoteImage:
        """Return the image for linux/amd64 with its config, all digests verified."""
        digest, manifest = self._manifest(self.repository.identifier)
        manifests.check_manifest(manifest, self.repository)
        config_digest = manifest["config"]["digest"]
        data = self.request("get", f"blobs/{config_digest}").content
        self._verify(config_digest, digest_of(data))
        config = manifests.parse(data, self.repository, "config")
        manifests.check_config(config, manifest, self.repository)
        return RemoteImage(digest, manifest, config)

    def blob(self, digest: str, size: int) -> Blob:
        """Return a blob of the repository, to read or to upload to another."""
        return Blob(digest, size, partial(self._chunks, digest))

    def put_manifest(self, manifest: bytes, media_type: str, tag: str) -> str:
        """Create an image whose blobs exist; return its digest."""
        response = self.request(
            "put", f"manifests/{tag}", data=manifest, headers={"Content-Type": media_type}
        )
        digest = digest_of(manifest)
        self._verify(response.headers.get("Docker-Content-Digest", digest), digest)
        return digest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.cancel()
        self.close()

    def _chunks(self, digest: str) -> Iterator[bytes]:
        """Yield a blob's content; raise an error of requests if the connection breaks."""
        # The digest is that of the bytes as they are stored.
        headers = {"Accept-Encoding": "identity"}
        content = hashlib.sha256()
        with self.request("get", f"blobs/{digest}", headers=headers, stream=True) as response:
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
        response = self.request("get", f"manifests/{identifier}", headers=manifests.ACCEPT)
        digest = digest_of(response.content)
        is_digest = identifier.startswith("sha256:")
        expected = identifier if is_digest else response.headers.get("Docker-Content-Digest")
        self._verify(expected or digest, digest)
        document = manifests.parse(response.content, self.repository, "manifest")
        return digest, document, response.headers.get("Content-Type", "")

    def _verify(self, expected: str, digest: str) -> None:
        if digest != expected:
            raise ImageError(
                f"content of {self.repository.host} has the digest {digest}, expected {expected}",
                remedy="check the registry and proxies, and push the image again",
            )


def append_layers(
    base: Reference,
    target: Reference,
    layers: Sequence[Layer],
    settings: ImageSettings,
    *,
    progress: Callable[[str], None] = lambda _: None,
    policy: RetryPolicy = DEFAULT_POLICY,
) -> str:
    """Push `target`, made of `base` and `layers`, and return its digest.

    The same input gives the same digest. Blobs that the target's repository has are not sent; those
    of a base in another repository are copied through this machine. `progress` is called with a
    line.
    """
    with Registry(base, policy) as source, Registry(target, policy) as registry:
        image = _push_layers(source, registry, layers, progress)
        config = Blob.of_bytes(_encode(extend_config(image.config, layers, settings)))
        registry.upload(config)
        manifest, media_type = _manifest(image, config, layers)
        return registry.put_manifest(manifest, media_type, target.identifier)


def _push_layers(
    source: Registry, registry: Registry, layers: Sequence[Layer], progress: Callable[[str], None]
) -> RemoteImage:
    """Upload the new layers and those of the base, several at a time; return the base."""
    lock = threading.Lock()
    sizes: dict[str, tuple[int, int]] = {}  # of the blobs that are sent: bytes so far, and in all

    def upload(blob: Blob) -> None:
        def show(sent: int) -> None:
            with lock:
                sizes[blob.digest] = (sent, blob.size)
                done, total = map(sum, zip(*sizes.values(), strict=True))
                name = registry.repository
                progress(f"pushing {name}: {done / 1e6:.1f} of {total / 1e6:.1f} MB")

        registry.upload(blob, show)

    with ThreadPoolExecutor(THREADS) as pool:
        try:
            files = [Blob.of_file(each.file, each.digest, each.size) for each in layers]
            uploads = [pool.submit(upload, blob) for blob in files]
            image = source.image()
            if source.repository.name != registry.repository.name:
                base = {each["digest"]: each["size"] for each in image.manifest["layers"]}
                blobs = [source.blob(digest, size) for digest, size in base.items()]
                uploads += [pool.submit(upload, blob) for blob in blobs]
            waiting = set(uploads)
            while waiting:  # at most a second at once: until then Windows holds Ctrl-C back
                done, waiting = wait(waiting, 1, FIRST_EXCEPTION)
                for each in done:
                    each.result()
        except BaseException:
            registry.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return image


def _manifest(image: RemoteImage, config: Blob, layers: Sequence[Layer]) -> tuple[bytes, str]:
    """Return the new manifest with its media type, in the format of the base's."""
    types = manifests.media_types(image.manifest)
    added = [_descriptor(types.layer, layer.digest, layer.size) for layer in layers]
    document = {
        "schemaVersion": 2,
        "mediaType": types.manifest,
        "config": _descriptor(types.config, config.digest, config.size),
        "layers": [*image.manifest["layers"], *added],
    }
    return _encode(document), types.manifest


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
