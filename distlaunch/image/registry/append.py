"""Append layers to an image in a registry, without Docker."""

from __future__ import annotations

import json
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from distlaunch.image.registry import manifests
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.credentials import Credentials, find_credentials
from distlaunch.image.registry.manifests import ImageSettings, extend_config
from distlaunch.image.registry.transport import DEFAULT_POLICY, THREADS, Blob, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distlaunch.image.layers import Layer
    from distlaunch.image.reference import Reference
    from distlaunch.image.registry.client import RemoteImage

_STEP = 5  # percent between two lines of progress


class AppendedImage(NamedTuple):
    """An image that `append_layers` has pushed: its digest, and the bytes sent to its registry."""

    digest: str
    bytes_sent: int


def append_layers(
    base: Reference,
    target: Reference,
    layers: Sequence[Layer],
    settings: ImageSettings,
    *,
    progress: Callable[[str], None] = lambda _: None,
    policy: RetryPolicy = DEFAULT_POLICY,
    credentials: Callable[[str], Credentials | None] = find_credentials,
) -> AppendedImage:
    """Push `target`, made of `base` and `layers`; the same input gives the same digest.

    Blobs that the target's repository has are not sent. The base's layers are mounted if both are
    in one registry, and copied through this machine otherwise. `progress` is called with a line.
    """
    with (
        Registry(base, policy=policy, credentials=credentials) as source,
        Registry(target, policy=policy, credentials=credentials) as registry,
    ):
        lines = _Progress(progress, f"pushing {target}")
        image = _push_layers(source, registry, layers, lines)
        config = Blob.of_bytes(_encode(extend_config(image.config, layers, settings)))
        registry.upload(config)
        manifest, media_type = _manifest(image, config, layers)
        digest = registry.put_manifest(manifest, media_type, target.identifier)
        return AppendedImage(digest, registry.bytes_sent)


def _push_layers(
    source: Registry, registry: Registry, layers: Sequence[Layer], progress: _Progress
) -> RemoteImage:
    """Upload the new layers and those of the base, several at a time; return the base."""

    def upload(blob: Blob) -> None:
        registry.upload(blob, partial(progress.update, blob))

    def mount_or_copy(blob: Blob) -> None:
        is_same_registry = source.repository.host == registry.repository.host
        if not (is_same_registry and registry.mount(blob.digest, source.repository)):
            upload(blob)

    with ThreadPoolExecutor(THREADS) as pool:
        try:
            files = [Blob.of_file(each.file, each.digest, each.size) for each in layers]
            uploads = [pool.submit(upload, blob) for blob in files]
            image = source.image()
            if source.repository.name != registry.repository.name:
                sizes = {each["digest"]: each["size"] for each in image.manifest["layers"]}
                blobs = [source.blob(digest, size) for digest, size in sizes.items()]
                uploads += [pool.submit(mount_or_copy, blob) for blob in blobs]
            for each in wait(uploads, return_when=FIRST_EXCEPTION).done:
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


class _Progress:
    """Prints how much of the blobs has been sent."""

    def __init__(self, print_line: Callable[[str], None], title: str) -> None:
        self._print_line = print_line
        self._title = title
        self._sizes: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._printed = -1
        self._lock = threading.Lock()

    def update(self, blob: Blob, sent: int) -> None:
        with self._lock:
            self._sizes[blob.digest], self._sent[blob.digest] = blob.size, sent
            done, total = sum(self._sent.values()), sum(self._sizes.values())
            percent = 100 * done // total // _STEP * _STEP
            if percent != self._printed:
                self._printed = percent
                self._print_line(f"{self._title}: {done / 1e6:.1f} of {total / 1e6:.1f} MB")
