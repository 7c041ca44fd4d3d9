"""Read and write images in a container registry over its HTTP API, without Docker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.errors import ImageError

if TYPE_CHECKING:
    from distlaunch.image.context import Context


class RegistryUnreachable(ImageError):
    """A registry does not respond."""

    is_of_base = False  # a look-up of base images failed, not one of the image's repository
    context: Context | None = None  # of the image, so that it need not be read again
