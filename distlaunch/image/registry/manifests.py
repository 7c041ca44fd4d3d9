"""What the documents of an image say, in Docker's words and in OCI's."""

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


class OtherPlatform(ImageError):
    """An image that is for other machines than Google's."""


def read(data: bytes, reference: Reference, what: str) -> dict[str, Any]:
    """Read one of the documents.

    Raises
    ------
    ImageError
        If it is none.
    """
    try:
        document = json.loads(data)
    except ValueError as problem:
        raise _broken(reference, f"its {what} is not JSON") from problem
    if not isinstance(document, dict):
        raise _broken(reference, f"its {what} is no JSON object")
    return document


def is_index(document: Mapping[str, Any], media_type: str = "") -> bool:
    """Whether a document lists images for several platforms; OCI's need not say what they are."""
    return media_type in (DOCKER_LIST, OCI_INDEX) or "manifests" in document


def choose(index: Mapping[str, Any], reference: Reference) -> str:
    """Return the digest of an index's image for linux/amd64.

    Raises
    ------
    OtherPlatform
        If it has none, with the platforms that it has.
    """
    known: dict[str, str] = {}
    for entry in index.get("manifests") or ():
        platform = entry.get("platform") or {}
        name = f"{platform.get('os')}/{platform.get('architecture')}"
        known.setdefault(name, str(entry.get("digest")))
    if PLATFORM in known:
        return known[PLATFORM]
    raise _other_platform(reference, sorted(set(known) - {"unknown/unknown", "None/None"}))


def check_manifest(manifest: Mapping[str, Any], reference: Reference) -> None:
    """Check that a manifest can be built on.

    Raises
    ------
    ImageError
        If not.
    """
    if manifest.get("schemaVersion") != 2:
        raise _broken(reference, "its manifest is of Docker's old schema 1")
    config, layers = manifest.get("config"), manifest.get("layers")
    if not isinstance(config, dict) or not isinstance(layers, list):
        raise _broken(reference, "its manifest names no config and layers")
    for blob in (config, *layers):
        if not {"digest", "size"} <= blob.keys() or not blob["digest"].startswith("sha256:"):
            raise _broken(reference, "its manifest names a blob without a sha256 digest and a size")


def check_config(
    config: Mapping[str, Any], manifest: Mapping[str, Any], reference: Reference
) -> None:
    """Check that a config is that of a container image for linux/amd64.

    Raises
    ------
    OtherPlatform
        If it is that of one for another.
    ImageError
        If it is none.
    """
    platform = f"{config.get('os', 'linux')}/{config.get('architecture', 'amd64')}"
    if platform != PLATFORM:
        raise _other_platform(reference, [platform])
    diff_ids = (config.get("rootfs") or {}).get("diff_ids")
    if not isinstance(diff_ids, list) or len(diff_ids) != len(manifest["layers"]):
        raise _broken(reference, "its config and its manifest have different layers")


def is_oci(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is in OCI's words."""
    said = manifest.get("mediaType") or manifest["config"].get("mediaType", "")
    return str(said).startswith("application/vnd.oci.")


def _other_platform(reference: Reference, platforms: list[str]) -> OtherPlatform:
    has = ", ".join(platforms) or "no platform that it names"
    return OtherPlatform(
        f"{reference} is for {has}, and Google's machines are {PLATFORM}; build it again with "
        f"'docker build --platform {PLATFORM}', or choose another image"
    )


def _broken(reference: Reference, why: str) -> ImageError:
    return ImageError(f"{reference} cannot be built on: {why}; push that image again")
