"""Manifests, indexes and configs of images, in Docker's and OCI's formats."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distlaunch.errors import ImageError
from distlaunch.image.reference import PLATFORM, Reference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.image.layers import Layer


@dataclass(frozen=True, slots=True)
class MediaTypes:
    """The media types of a format."""

    manifest: str
    index: str
    config: str
    layer: str


DOCKER = MediaTypes(
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
)
OCI = MediaTypes(
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.oci.image.layer.v1.tar+gzip",
)
ACCEPT = {"Accept": f"{DOCKER.manifest}, {DOCKER.index}, {OCI.manifest}, {OCI.index}"}

# In place of the time of a build: the same inputs give the same digest.
_EPOCH = "1970-01-01T00:00:00Z"
_BUILD_KEYS = ("container", "container_config", "docker_version", "id", "parent")


class WrongPlatform(ImageError):
    """An image that is not for linux/amd64."""


def parse(data: bytes, reference: Reference, name: str) -> dict[str, Any]:
    """Parse a manifest, an index or a config."""
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _unsupported(reference, f"its {name} is not a JSON object")
    return document


def is_index(document: Mapping[str, Any], media_type: str = "") -> bool:
    """Return whether a document lists images for several platforms."""
    return media_type in (DOCKER.index, OCI.index) or "manifests" in document


def media_types(manifest: Mapping[str, Any]) -> MediaTypes:
    """Return the media types of a manifest's format."""
    media_type = manifest.get("mediaType") or manifest["config"].get("mediaType", "")
    return OCI if str(media_type).startswith("application/vnd.oci.") else DOCKER


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
    if manifest.get("schemaVersion") != 2 or not {"config", "layers"} <= set(manifest):
        raise _unsupported(reference, "its manifest has no config and layers")


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


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """What an image's config changes in that of its base."""

    entrypoint: tuple[str, ...] = ()  # empty keeps the base's entrypoint and arguments
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None


def extend_config(
    config: Mapping[str, Any], layers: Sequence[Layer], settings: ImageSettings
) -> dict[str, Any]:
    """Return a base's config with more layers and changed settings.

    The creation time is the base's, so that the result is the same at any time on any machine.
    """
    created = config.get("created") or _EPOCH
    base_diff_ids = config["rootfs"]["diff_ids"]
    diff_ids = [*base_diff_ids, *(layer.diff_id for layer in layers)]
    history = list(config.get("history") or ())
    entries = sum(not entry.get("empty_layer") for entry in history)
    missing = [{"created": _EPOCH} for _ in range(len(base_diff_ids) - entries)]
    added = [{"created": created, "created_by": layer.created_by} for layer in layers]
    return {
        **{key: value for key, value in config.items() if key not in _BUILD_KEYS},
        "created": created,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [*missing, *history, *added],
        "config": _apply(config, settings),
    }


def environment_variables(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that an image's config sets."""
    inner = config.get("config") or {}
    return dict(entry.partition("=")[::2] for entry in inner.get("Env") or ())


def _apply(config: Mapping[str, Any], settings: ImageSettings) -> dict[str, Any]:
    inner = {key: value for key, value in (config.get("config") or {}).items() if key != "Image"}
    env = {**environment_variables(config), **settings.env}
    if env:
        inner["Env"] = [f"{name}={value}" for name, value in env.items()]
    if settings.entrypoint:
        inner["Entrypoint"] = list(settings.entrypoint)
        inner.pop("Cmd", None)
    if settings.workdir is not None:
        inner["WorkingDir"] = settings.workdir
    return inner


def _wrong_platform(reference: Reference, platforms: list[str]) -> WrongPlatform:
    names = ", ".join(platforms) or "no named platform"
    return WrongPlatform(
        f"{reference} is for {names}, and Google's machines are {PLATFORM}",
        remedy=f"rebuild it with 'docker build --platform {PLATFORM}', or choose another image",
    )


def _unsupported(reference: Reference, reason: str) -> ImageError:
    what = f"{reference} is not a usable image: {reason}"
    return ImageError(what, remedy="push that image again")
