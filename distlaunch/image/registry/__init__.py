"""Read and write images in a container registry over its HTTP API, without Docker."""

from __future__ import annotations

from distlaunch.errors import ImageError


class RegistryUnreachable(ImageError):
    """A registry does not respond."""

    is_of_base = False  # a look-up of base images failed, not one of the image's repository
