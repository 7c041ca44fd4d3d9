"""Errors of credentials that get no token, in the words of Google's token servers."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from google.auth.exceptions import OAuthError, RefreshError

from distlaunch.engines.vertex.tokens import token_error

ACCOUNT = "trainer@demo-project.iam.gserviceaccount.com"
POOL = "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/github"
PERMISSION = "Permission 'iam.serviceAccounts.getAccessToken' denied on resource"
GRANT = f"gcloud iam service-accounts add-iam-policy-binding {ACCOUNT} --member"
UNUSED = "IAM Service Account Credentials API has not been used in project 12 before"
UNKNOWN = "Not found; Gaia id not found for email old@p.iam.gserviceaccount.com"
CREATOR = "--role=roles/iam.serviceAccountTokenCreator'"
PROXY_PAGE = (
    "<!DOCTYPE html>\n<html><head><title>Web filter</title><style>\nh1 {color: red}</style></head>"
    "<body><!-- rule 7 --><h1>Access denied</h1></body></html>"
)
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


@pytest.mark.parametrize(
    ("message", "audience", "part"),
    [
        (PERMISSION, "", f"({PERMISSION}); have an administrator run '{GRANT}=user:"),
        (PERMISSION, "", f"{GRANT}=user:$(gcloud config get account) {CREATOR}"),
        (PERMISSION, f"{POOL}/providers/p", f"{GRANT}=principalSet:{POOL}/* {CREATOR}"),
        (UNUSED, "", "run 'gcloud services enable iamcredentials.googleapis.com --project=12'"),
        (UNKNOWN, "", "; use another account, or restore old@p.iam.gserviceaccount.com if it was"),
    ],
)
def test_impersonation_that_is_refused(use, no_credentials, message, audience, part):
    if audience:
        use(type="external_account", audience=audience)
    assert part in str(token_error(refused(message), IMPERSONATED))


def test_a_rejected_workload_identity_names_its_provider(use):
    path = use(type="external_account", audience=f"{POOL}/providers/p")
    reason = "Error code unauthorized_client: The given credential is rejected by the attribute"
    text = str(token_error(OAuthError(reason, '{"error": "unauthorized_client"}'), None))
    assert f"({reason}); check the provider {POOL}/providers/p, which {path} names" in text
    assert "application-default" not in text


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        (
            "account_disabled: Service account is disabled",
            f"run 'gcloud iam service-accounts enable {ACCOUNT}', or use another account",
        ),
        (
            "invalid_grant: Invalid grant: account not found",
            f"use another account, or restore {ACCOUNT} if it was deleted less than 30 days ago "
            "(see 'gcloud iam service-accounts undelete --help')",
        ),
        (
            "admin_policy_enforced: None",
            "have an administrator of the organisation's Google Workspace allow access to Google "
            "Cloud",
        ),
    ],
)
def test_a_key_is_not_replaced_where_that_does_not_help(use, reason, remedy):
    use(type="service_account", client_email=ACCOUNT)
    text = str(token_error(RefreshError(reason, {}), IMPERSONATED))
    quoted = reason.removesuffix(": None")
    assert text == f"Google does not accept the credentials ({quoted}); {remedy}"


@pytest.mark.parametrize("arguments", [(PROXY_PAGE,), ("Unable to acquire …", PROXY_PAGE)])
def test_a_page_of_a_proxy_is_no_answer_of_google(use, arguments):
    use(type="service_account", client_email=ACCOUNT)
    for is_retryable in (False, True):
        error = token_error(RefreshError(*arguments, retryable=is_retryable), IMPERSONATED)
        assert str(error) == (
            "the server of Google's tokens answers with a page that is not Google's (Web filter "
            "Access denied): a proxy or firewall is in between; contact your network's "
            "administrators, or set HTTPS_PROXY and NO_PROXY"
        )


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
