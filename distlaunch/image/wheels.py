"""An image's environment as a layer of wheels, with pip and without any engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distlaunch.image.layers import Layer
    from distlaunch.image.reference import Reference


def environment_layer(
    base: Reference,
    requirements: str,
    file: Path,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Layer:
    """Write what pip installs for a base image as a layer.

    Parameters
    ----------
    base
        The image, whose Python is found out from its registry.
    requirements
        The text of a requirements file.
    file
        Where to write to; what pip unpacks goes to a folder beside it for as long.
    progress
        Told what is being done, a line each.

    Raises
    ------
    ImageError
        If the base has no Python that can be found, or a package has no wheel for it.
    """
    raise NotImplementedError
