"""An image that is another one and some layers, made in the registry without any engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distlaunch.image.layers import Layer
    from distlaunch.image.reference import Reference


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
) -> Appended:
    """Make `target` of `base` and `layers`; the same input gives the same digest everywhere.

    Nothing that the target's repository has is sent. What the base has is mounted where both are on
    one registry, and copied through this machine where they are not.

    Parameters
    ----------
    target
        A repository with the tag to give.
    progress
        Told what is being done, a line each.

    Raises
    ------
    ImageError
        If a registry refuses or cannot be reached, or `base` is not for linux/amd64.
    """
    raise NotImplementedError
