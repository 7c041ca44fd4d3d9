"""An image's config: what it runs, and how a layer and other settings change it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.image.layers import Layer

_NO_TIME = "1970-01-01T00:00:00Z"
_OF_A_BUILD = ("container", "container_config", "docker_version", "id", "parent")


@dataclass(frozen=True, slots=True)
class Settings:
    """What an image's config says beside its base's.

    Parameters
    ----------
    entrypoint
        The program, which replaces the base's and its default arguments; empty for the base's.
    env
        Variables beside the base's.
    workdir
        The folder it starts in, None for the base's.
    labels
        Labels beside the base's.
    """

    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def extended(
    config: Mapping[str, Any], layers: Sequence[Layer], settings: Settings
) -> dict[str, Any]:
    """Return the config of an image that has more layers and other settings.

    Its time is its base's, so that nothing in it is of the moment or the machine.
    """
    created = config.get("created") or _NO_TIME
    before = config["rootfs"]["diff_ids"]
    new = {key: value for key, value in config.items() if key not in _OF_A_BUILD}
    new["created"] = created
    new["rootfs"] = {"type": "layers", "diff_ids": [*before, *(each.diff_id for each in layers)]}
    new["history"] = [
        *_history(config, len(before)),
        *({"created": created, "created_by": each.created_by} for each in layers),
    ]
    new["config"] = _settled(config, settings)
    return new


def environment_variables(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that an image's config sets."""
    inner = config.get("config") or {}
    return dict(each.partition("=")[::2] for each in inner.get("Env") or ())


def _history(config: Mapping[str, Any], layers: int) -> list[Any]:
    """Return a base's history, filled up where it tells of fewer layers than there are."""
    told = list(config.get("history") or ())
    of_layers = sum(not each.get("empty_layer") for each in told)
    return [*({"created": _NO_TIME} for _ in range(layers - of_layers)), *told]


def _settled(image: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    config = image.get("config") or {}
    new = {key: value for key, value in config.items() if key != "Image"}
    env = {**environment_variables(image), **settings.env}
    if env:
        new["Env"] = [f"{name}={value}" for name, value in env.items()]
    if settings.labels or config.get("Labels"):
        new["Labels"] = {**(config.get("Labels") or {}), **settings.labels}
    if settings.entrypoint:
        new["Entrypoint"] = list(settings.entrypoint)
        new.pop("Cmd", None)
    if settings.workdir is not None:
        new["WorkingDir"] = settings.workdir
    return new
