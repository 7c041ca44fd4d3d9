"""Application default credentials, and gcloud's default project and region; gcloud is not run."""

from __future__ import annotations

import configparser
import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.errors import GoogleError, os_reason
from distlaunch.refusals import LOGIN

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

CREDENTIALS_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_MALFORMED = (AttributeError, TypeError, ValueError)  # raised for JSON that is not credentials
# In the order of google.auth and gcloud: a variable of the client libraries, then gcloud's.
_PROJECT_VARIABLES = ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
_REGION_VARIABLES = ("CLOUDSDK_AI_REGION", "GOOGLE_CLOUD_REGION", "CLOUDSDK_COMPUTE_REGION")


def load_credentials(project: str | None) -> Credentials:
    """Return the application default credentials.

    `google.auth.default` runs gcloud to learn the project of a user's credentials, which takes half
    a second; their file is read directly instead. `project` becomes the quota project of a user's
    credentials that name none. Without credentials, GoogleError has the command that creates them.
    """
    import google.auth
    from google.auth.credentials import with_scopes_if_required
    from google.auth.exceptions import GoogleAuthError
    from google.oauth2.credentials import Credentials as UserCredentials

    file = credentials_file()
    os.environ.setdefault("GCE_METADATA_DETECT_RETRIES", "1")  # of 3 s each
    logging.getLogger("google.auth.compute_engine._metadata").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing quota project, which is set below
            if file:
                loaded: Any = google.auth.load_credentials_from_file(file)[0]  # type: ignore[no-untyped-call]
                loaded = with_scopes_if_required(loaded, [_SCOPE])  # type: ignore[no-untyped-call]
            else:
                loaded = google.auth.default(scopes=[_SCOPE])[0]
    except (GoogleAuthError, OSError, *_MALFORMED) as error:
        raise _no_credentials(file, error) from None
    if project and isinstance(loaded, UserCredentials) and not loaded.quota_project_id:
        loaded = loaded.with_quota_project(project)
    credentials: Credentials = loaded
    return credentials


def login_remedy() -> str:
    """Return how to replace the application default credentials that Google does not accept."""
    file = os.environ.get(CREDENTIALS_VARIABLE)
    if not file:
        return f"run '{LOGIN}'"
    no_effect = f"gcloud's login has no effect while {CREDENTIALS_VARIABLE} is set"
    if provider := _from_credentials("audience"):
        return f"check the provider {provider}, which {file} names ({no_effect})"
    if email := _from_credentials("client_email"):
        create = f"gcloud iam service-accounts keys create {file} --iam-account={email}"
        return f"replace the key in {file}, such as by '{create}' ({no_effect})"
    return f"replace {file}, or unset {CREDENTIALS_VARIABLE} ({no_effect})"


def federated_member() -> str | None:
    """Return the identities of the pool whose credentials are used in IAM's notation, if any."""
    pool, _, provider = (_from_credentials("audience") or "").partition("/providers/")
    return f"principalSet:{pool}/*" if provider else None


def iam_member(credentials: Credentials) -> str | None:
    """Return the owner of credentials in IAM's notation (``user:…``), None if unknown."""
    email = getattr(credentials, "service_account_email", None)
    if isinstance(email, str) and "@" in email:
        return f"serviceAccount:{email}"
    account = getattr(credentials, "account", None)
    return f"user:{account}" if account else None


def default_project() -> str | None:
    """Return the project from the environment, gcloud's configuration or the credentials' file."""
    return (
        _variable(_PROJECT_VARIABLES)
        or _gcloud_property("core", "project")
        or _from_credentials("project_id")
        or _from_credentials("quota_project_id")
        or _from_metadata_server()
    )


def default_region() -> str | None:
    """Return the region from the environment or gcloud's configuration."""
    return (
        _variable(_REGION_VARIABLES)
        or _gcloud_property("ai", "region")
        or _gcloud_property("compute", "region")
    )


def credentials_file() -> str | None:
    """Return the file with the application default credentials, None if there is none.

    A file that the environment names is returned even if it does not exist.
    """
    named = os.environ.get(CREDENTIALS_VARIABLE)
    if named:
        return named
    default = _gcloud_folder() / "application_default_credentials.json"
    return str(default) if default.is_file() else None


def _no_credentials(file: str | None, error: Exception) -> GoogleError:
    what, remedy = "no credentials for Google Cloud", f"run '{LOGIN}'"
    if file is not None:
        text = os_reason(error) if isinstance(error, OSError) else str(error.args[0])
        reason = " ".join(text.split()).rstrip(".")
        what = f"{file}: not valid credentials ({reason})"
        remedy = f"run '{LOGIN}' to write a new one"
        if os.environ.get(CREDENTIALS_VARIABLE):
            remedy = f"fix the file or {CREDENTIALS_VARIABLE}, which names it"
    return GoogleError(what, remedy=remedy, status=401, reason="UNAUTHENTICATED")


def _gcloud_folder() -> Path:
    configured = os.environ.get("CLOUDSDK_CONFIG")
    if not configured and sys.platform == "win32" and "APPDATA" in os.environ:
        return Path(os.environ["APPDATA"], "gcloud")
    return Path(configured) if configured else Path("~/.config/gcloud").expanduser()


def _variable(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(os.environ.get, names)), None)


def _gcloud_property(section: str, name: str) -> str | None:
    """Return a property of gcloud's active configuration."""
    folder = _gcloud_folder()
    active = os.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or _active_configuration(folder)
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(folder / "configurations" / f"config_{active}", encoding="utf-8")
        return parser.get(section, name, fallback=None) or None
    except (configparser.Error, OSError, UnicodeDecodeError):
        return None  # gcloud reports a malformed configuration itself


def _active_configuration(folder: Path) -> str:
    try:
        return (folder / "active_config").read_text(encoding="utf-8").strip() or "default"
    except (OSError, UnicodeDecodeError):
        return "default"


def _from_metadata_server() -> str | None:
    """Return the project of a machine of Google's, if its credentials are used."""
    import google.auth
    from google.auth.compute_engine import _metadata
    from google.auth.exceptions import GoogleAuthError

    is_named = os.environ.get("GCE_METADATA_HOST")
    if credentials_file() or not (is_named or _metadata.detect_gce_residency_linux()):  # type: ignore[no-untyped-call]
        return None  # without a request, which takes seconds elsewhere
    try:
        return google.auth.default()[1]
    except GoogleAuthError:
        return None


def _from_credentials(name: str) -> str | None:
    file = credentials_file()
    try:
        content = json.loads(Path(file).read_bytes()) if file else {}
    except (OSError, ValueError, RecursionError):
        return None
    value = content.get(name) if isinstance(content, dict) else None
    return value if isinstance(value, str) else None
