"""Errors of credentials that get no token, in the words of Google's token servers."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from google.auth.exceptions import OAuthError, RefreshError

from distlaunch.google.tokens import token_error

ACCOUNT = "trainer@demo-project.iam.gserviceaccount.com"
POOL = "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/github"
PERMISSION = "Permission 'iam.serviceAccounts.getAccessToken' denied on resource"
GRANT = f"gcloud iam service-accounts add-iam-policy-binding {ACCOUNT} --member"
CREATOR = "--role=roles/iam.serviceAccountTokenCreator'"
IMPERSONATED = SimpleNamespace(service_account_email=ACCOUNT)


def refused(message: str) -> RefreshError:
    """Return what google-auth raises where the API that impersonates accounts refuses."""
    error = {"code": 403, "message": message, "status": "PERMISSION_DENIED"}
    return RefreshError("Unable to acquire impersonated credentials", json.dumps({"error": error}))


@pytest.fixture
def use(no_credentials, tmp_path, monkeypatch):
    """Write the credentials that GOOGLE_APPLICATION_CREDENTIALS names; return the path."""

    def write(**content: str) -> str:
        path = tmp_path / "credentials.json"
        path.write_text(json.dumps(content))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        return str(path)

    return write


def test_impersonation_names_the_permission_and_the_role(no_credentials):
    text = str(token_error(refused(PERMISSION), IMPERSONATED))
    assert PERMISSION in text
    assert f"{GRANT}=user:$(gcloud config get account) {CREATOR}" in text


def test_a_disabled_api_of_impersonation(no_credentials):
    message = "IAM Service Account Credentials API has not been used in project 12 before"
    text = str(token_error(refused(message), IMPERSONATED))
    assert "run 'gcloud services enable iamcredentials.googleapis.com --project=12'" in text


def test_the_pool_of_workload_identity_is_the_member(use):
    use(type="external_account", audience=f"{POOL}/providers/p")
    text = str(token_error(refused(PERMISSION), IMPERSONATED))
    assert f"{GRANT}=principalSet:{POOL}/* {CREATOR}" in text


def test_a_rejected_workload_identity_names_its_provider(use):
    path = use(type="external_account", audience=f"{POOL}/providers/p")
    reason = "Error code unauthorized_client: The given credential is rejected by the attribute"
    text = str(token_error(OAuthError(reason, '{"error": "unauthorized_client"}'), None))
    assert f"({reason}); check the provider {POOL}/providers/p, which {path} names" in text
    assert "application-default" not in text


def test_another_file_of_the_environment_is_named(use):
    path = use(type="authorized_user")
    text = str(token_error(RefreshError("invalid_grant: Token has been revoked."), None))
    assert f"; replace {path}, or unset GOOGLE_APPLICATION_CREDENTIALS" in text


def test_a_user_signs_in_again(no_credentials):
    error = token_error(RefreshError("Reauthentication is needed."), None)
    assert str(error).endswith(
        "(Reauthentication is needed); run 'gcloud auth application-default login'"
    )
    assert error.status == 401
