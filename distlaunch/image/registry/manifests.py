"""Manifests and indexes of images, in Docker's and OCI's formats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from distlaunch.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.image.reference import Reference

PLATFORM = "linux/amd64"

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
ACCEPT = {"Accept": f"{DOCKER_MANIFEST}, {DOCKER_LIST}, {OCI_MANIFEST}, {OCI_INDEX}"}


class WrongPlatform(ImageError):
    """An image that is not for linux/amd64."""


def parse(data: bytes, reference: Reference, name: str) -> dict[str, Any]:
    """Parse a manifest, an index or a config."""
    try:
        document = json.loads(data)
    except ValueError as problem:
        raise _unsupported(reference, f"its {name} is not JSON") from problem
    if not isinstance(document, dict):
        raise _unsupported(reference, f"its {name} is not a JSON object")
    return document


def is_index(document: Mapping[str, Any], media_type: str = "") -> bool:
    """Return whether a document lists images for several platforms."""
    return media_type in (DOCKER_LIST, OCI_INDEX) or "manifests" in document


def is_oci(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest is in OCI's format."""
    media_type = manifest.get("mediaType") or manifest["config"].get("mediaType", "")
    return str(media_type).startswith("application/vnd.oci.")


def choose(index: Mapping[str, Any], reference: Reference) -> str:
    """Return the digest of an index's image for linux/amd64."""
    digests: dict[str, str] = {}
    for entry in index.get("manifests") or ():
        platform = entry.get("platform") or {}
        name = f"{platform.get('os')}/{platform.get('architecture')}"
        digests.setdefault(name, str(entry.get("digest")))
    if PLATFORM in digests:
        return digests[PLATFORM]
    raise _wrong_platform(reference, sorted(set(digests) - {"unknown/unknown", "None/None"}))


def check_manifest(manifest: Mapping[str, Any], reference: Reference) -> None:
    """Raise an error unless a layer can be appended to this manifest."""
    blobs = [manifest.get("config") or {}, *(manifest.get("layers") or ())]
    is_usable = manifest.get("schemaVersion") == 2 and "layers" in manifest
    for blob in blobs:
        is_usable &= str(blob.get("digest")).startswith("sha256:") and "size" in blob
    if not is_usable:
        raise _unsupported(reference, "its manifest has no config and layers by sha256 digest")


def check_config(
    config: Mapping[str, Any], manifest: Mapping[str, Any], reference: Reference
) -> None:
    """Raise an error unless a config is of a container image for linux/amd64."""
    platform = f"{config.get('os', 'linux')}/{config.get('architecture', 'amd64')}"
    if platform != PLATFORM:
        raise _wrong_platform(reference, [platform])
    diff_ids = (config.get("rootfs") or {}).get("diff_ids")
    if not isinstance(diff_ids, list) or len(diff_ids) != len(manifest["layers"]):
        raise _unsupported(reference, "its config and its manifest have different layers")


def _wrong_platform(reference: Reference, platforms: list[str]) -> WrongPlatform:
    names = ", ".join(platforms) or "no named platform"
    return WrongPlatform(
        f"{reference} is for {names}, and Google's machines are {PLATFORM}; rebuild it with "
        f"'docker build --platform {PLATFORM}', or choose another image"
    )


def _unsupported(reference: Reference, reason: str) -> ImageError:
    return ImageError(f"{reference} is not a usable image: {reason}; push that image again")
