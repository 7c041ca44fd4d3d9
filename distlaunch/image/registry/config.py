"""The config of an image: entrypoint, environment and history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.image.layers import Layer

_EPOCH = "1970-01-01T00:00:00Z"
_BUILD_KEYS = ("container", "container_config", "docker_version", "id", "parent")


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """What an image's config changes in that of its base.

    Parameters
    ----------
    entrypoint
        The program, which replaces the base's entrypoint and arguments; empty keeps them.
    env
        Additional environment variables.
    workdir
        The working directory, None for the base's.
    labels
        Additional labels.
    """

    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


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
    if settings.labels:
        inner["Labels"] = {**(inner.get("Labels") or {}), **settings.labels}
    if settings.entrypoint:
        inner["Entrypoint"] = list(settings.entrypoint)
        inner.pop("Cmd", None)
    if settings.workdir is not None:
        inner["WorkingDir"] = settings.workdir
    return inner
