"""The project and the region that are meant where nobody says so; no gcloud is run for it."""

from __future__ import annotations


def project_id() -> str | None:
    """Return the project from the environment, gcloud's configuration or the credentials' file."""
    raise NotImplementedError


def region() -> str | None:
    """Return the region from the environment or gcloud's configuration."""
    raise NotImplementedError
