"""The project and the region that are meant where nobody says so; no gcloud is run for it."""

from __future__ import annotations

import configparser
import json
import os
from pathlib import Path

CREDENTIALS_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"

# The order is google.auth's and gcloud's: a variable of the client libraries, one of gcloud's, the
# active configuration.
_PROJECT_VARIABLES = ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
_REGION_VARIABLES = ("CLOUDSDK_AI_REGION", "GOOGLE_CLOUD_REGION", "CLOUDSDK_COMPUTE_REGION")


def project_id() -> str | None:
    """Return the project from the environment, gcloud's configuration or the credentials' file."""
    return (
        _variable(_PROJECT_VARIABLES)
        or _configured("core", "project")
        or _told_by_credentials("project_id")
        or _told_by_credentials("quota_project_id")
    )


def region() -> str | None:
    """Return the region from the environment or gcloud's configuration."""
    return (
        _variable(_REGION_VARIABLES)
        or _configured("ai", "region")
        or _configured("compute", "region")
    )


def credentials_file() -> str | None:
    """Return the file with the application default credentials, None where there is none.

    One that the environment names is returned though it isn't there.
    """
    named = os.environ.get(CREDENTIALS_VARIABLE)
    if named:
        return named
    usual = _gcloud_folder() / "application_default_credentials.json"
    return str(usual) if usual.is_file() else None


def _gcloud_folder() -> Path:
    said = os.environ.get("CLOUDSDK_CONFIG")
    return Path(said) if said else Path("~/.config/gcloud").expanduser()


def _variable(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(os.environ.get, names)), None)


def _configured(section: str, name: str) -> str | None:
    """Return a property of gcloud's active configuration."""
    folder = _gcloud_folder()
    active = os.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or _active(folder)
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(folder / "configurations" / f"config_{active}", encoding="utf-8")
        return parser.get(section, name, fallback=None) or None
    except (configparser.Error, OSError, UnicodeDecodeError):
        return None  # gcloud itself would complain of it


def _active(folder: Path) -> str:
    try:
        return (folder / "active_config").read_text(encoding="utf-8").strip() or "default"
    except (OSError, UnicodeDecodeError):
        return "default"


def _told_by_credentials(name: str) -> str | None:
    file = credentials_file()
    try:
        told = json.loads(Path(file).read_bytes()) if file else {}
    except (OSError, ValueError, RecursionError):
        return None
    value = told.get(name) if isinstance(told, dict) else None
    return value if isinstance(value, str) else None
