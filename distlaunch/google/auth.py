"""Who we are to Google: the application default credentials, found without running gcloud."""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING, Any

from distlaunch.errors import GoogleError
from distlaunch.google import defaults
from distlaunch.google.api_errors import LOGIN

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_MALFORMED = (AttributeError, TypeError, ValueError)  # of a file that is JSON, but not theirs


def find(project: str | None) -> Credentials:
    """Return the application default credentials.

    `google.auth.default` would run gcloud to learn the project of a user's credentials, which takes
    half a second; their file is read directly instead.

    Parameters
    ----------
    project
        Pays for the calls where the credentials are a user's and name no other.

    Raises
    ------
    GoogleError
        If there are none, with the command that makes them.
    """
    import google.auth
    import google.auth.exceptions

    file = defaults.credentials_file()
    logging.getLogger("google.auth.compute_engine._metadata").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of quota projects, which are seen to here
            found = _load(file) if file else google.auth.default(scopes=[_SCOPE])[0]
    except (google.auth.exceptions.GoogleAuthError, OSError, *_MALFORMED) as problem:
        raise _no_credentials(file, problem) from None
    return _paid_by(project, found)


def member(credentials: Credentials) -> str | None:
    """Return who the credentials belong to, as IAM writes it, where they tell."""
    email = getattr(credentials, "service_account_email", None)
    if isinstance(email, str) and "@" in email:
        return f"serviceAccount:{email}"
    account = getattr(credentials, "account", None)
    return f"user:{account}" if account else None


def _load(file: str) -> Credentials:
    import google.auth
    from google.auth.credentials import with_scopes_if_required

    found: Any = google.auth.load_credentials_from_file(file)[0]  # type: ignore[no-untyped-call]
    scoped: Credentials = with_scopes_if_required(found, [_SCOPE])  # type: ignore[no-untyped-call]
    return scoped


def _paid_by(project: str | None, credentials: Credentials) -> Credentials:
    from google.oauth2.credentials import Credentials as UserCredentials

    if project and isinstance(credentials, UserCredentials) and not credentials.quota_project_id:
        paid: Credentials = credentials.with_quota_project(project)
        return paid
    return credentials


def _no_credentials(file: str | None, problem: Exception) -> GoogleError:
    if file is None:
        return GoogleError(
            f"no credentials for google cloud; run '{LOGIN}'", status=401, reason="UNAUTHENTICATED"
        )
    why = " ".join(str(problem.args[0] if problem.args else problem).split()).rstrip(".")
    said = (
        f"{defaults.CREDENTIALS_VARIABLE} names it"
        if os.environ.get(defaults.CREDENTIALS_VARIABLE)
        else f"run '{LOGIN}' to write it anew"
    )
    return GoogleError(
        f"{file}: no credentials that can be used ({why}); {said}",
        status=401,
        reason="UNAUTHENTICATED",
    )
