"""Read and write images in a container registry over its HTTP API, without Docker."""

from __future__ import annotations

from distlaunch.errors import ImageError


class RegistryUnreachable(ImageError):
    """A registry does not respond."""
