"""An image that is another one and some layers, made in the registry without any engine."""

from __future__ import annotations

import json
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.image.registry import manifests
from distlaunch.image.registry.blobs import BytesSource, FileSource
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.config import extended
from distlaunch.image.registry.credentials import Credentials, credentials
from distlaunch.image.registry.transport import PATIENT, THREADS, Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from distlaunch.image.layers import Layer
    from distlaunch.image.reference import Reference
    from distlaunch.image.registry.blobs import Source
    from distlaunch.image.registry.client import RemoteImage
    from distlaunch.image.registry.config import Settings

_STEP = 5  # per cent between two lines of progress


@dataclass(frozen=True, slots=True)
class Appended:
    """An image that the registry now has.

    Parameters
    ----------
    digest
        ``sha256:…`` of its manifest.
    sent
        Bytes sent to the target's registry.
    """

    digest: str
    sent: int


def append(
    base: Reference,
    target: Reference,
    layers: Sequence[Layer],
    settings: Settings,
    *,
    progress: Callable[[str], None] = lambda _: None,
    patience: Patience = PATIENT,
    find: Callable[[str], Credentials | None] = credentials,
) -> Appended:
    """Make `target` of `base` and `layers`; the same input gives the same digest everywhere.

    Nothing that the target's repository has is sent. What the base has is mounted where both are on
    one registry, and copied through this machine where they are not.

    Parameters
    ----------
    target
        A repository with the tag to give.
    progress
        Told how far it is, a line each.
    patience
        How long registries are waited for.
    find
        Tells who we are to a host.

    Raises
    ------
    ImageError
        If a registry refuses or cannot be reached, or `base` is not for linux/amd64.
    """
    with (
        Registry(base, patience=patience, find=find) as source,
        Registry(target, patience=patience, find=find) as into,
    ):
        work = _Work(source, into, _Progress(progress, f"pushing {target}"))
        image = work.bring_all(layers)
        config = _encoded(extended(image.config, layers, settings))
        work.bring_config(config)
        manifest, media_type = _manifest(image, config, layers)
        digest = into.put(manifest, media_type, target.tag or "latest")
        return Appended(digest, into.sent)


def _manifest(image: RemoteImage, config: bytes, layers: Sequence[Layer]) -> tuple[bytes, str]:
    """Return the new manifest with its media type, in the words of the base's."""
    in_oci = manifests.is_oci(image.manifest)
    media_type = manifests.OCI_MANIFEST if in_oci else manifests.DOCKER_MANIFEST
    of_config = manifests.OCI_CONFIG if in_oci else manifests.DOCKER_CONFIG
    of_layer = manifests.OCI_LAYER if in_oci else manifests.DOCKER_LAYER
    source = BytesSource(config)
    document = {
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": _descriptor(of_config, source.digest, source.size),
        "layers": [
            *image.manifest["layers"],
            *(_descriptor(of_layer, each.digest, each.size) for each in layers),
        ],
    }
    return _encoded(document), media_type


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def _encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


class _Work:
    """Blobs that are brought into one repository, several at a time."""

    def __init__(self, source: Registry, into: Registry, progress: _Progress) -> None:
        self._source = source
        self._into = into
        self._progress = progress

    def bring_all(self, layers: Iterable[Layer]) -> RemoteImage:
        """Bring the layers and all that the base has; return the base."""
        files = [FileSource(each.file, each.digest, each.size) for each in layers]
        with ThreadPoolExecutor(THREADS) as pool:
            try:
                under_way = [pool.submit(self._bring_new, each) for each in files]
                image = self._source.image()
                under_way += [pool.submit(self._bring_old, each) for each in self._old(image)]
                # One that fails ends the others, which may have long to go.
                for each in wait(under_way, return_when=FIRST_EXCEPTION).done:
                    each.result()
            except BaseException:
                self._source.transport.abandon()
                self._into.transport.abandon()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return image

    def bring_config(self, config: bytes) -> None:
        self._into.send(BytesSource(config))

    def _old(self, image: RemoteImage) -> list[Source]:
        """Return the base's blobs that the target's repository may lack."""
        if self._source.repository.name == self._into.repository.name:
            return []
        sizes = {each["digest"]: each["size"] for each in image.manifest["layers"]}
        return [self._source.blob(digest, size) for digest, size in sizes.items()]

    def _bring_old(self, blob: Source) -> None:
        base = self._source.repository
        if base.host == self._into.repository.host and self._into.mount(blob.digest, base):
            return
        self._bring_new(blob)

    def _bring_new(self, blob: Source) -> None:
        if not self._into.has_blob(blob.digest):
            self._progress.expect(blob.size)
            self._into.send(blob, self._progress.seen)


class _Progress:
    """How much of what is to be sent has gone out, told in steps."""

    def __init__(self, tell: Callable[[str], None], what: str) -> None:
        self._tell = tell
        self._what = what
        self._total = self._done = 0
        self._told = -1
        self._lock = threading.Lock()

    def expect(self, size: int) -> None:
        with self._lock:
            self._total += size
            self._say()

    def seen(self, size: int) -> None:
        with self._lock:
            self._done += size
            self._say()

    def _say(self) -> None:
        share = 100 * self._done // max(self._total, 1) // _STEP * _STEP
        if share != self._told:
            self._told = share
            self._tell(f"{self._what}: {self._done / 1e6:.1f} of {self._total / 1e6:.1f} MB")
