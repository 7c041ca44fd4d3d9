"""Remedies of Google's reasons, by its names and by its texts."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as some

from distlaunch.refusals import find_remedy, permission_in

UNUSED = "X API has not been used in project 7 before or it is disabled."
CODES = ("", "SERVICE_DISABLED", "SECURITY_POLICY_VIOLATED", "forbidden", "NEW_REASON")


def test_the_name_of_a_reason_precedes_its_text():
    remedy = find_remedy(UNUSED, "BILLING_DISABLED")
    assert remedy.code == "BILLING_DISABLED"
    assert remedy.text.startswith("run 'gcloud billing projects link ")
    assert find_remedy(UNUSED, "NEW_REASON").code == "SERVICE_DISABLED"
    assert find_remedy("The caller does not have permission", "IAM_PERMISSION_DENIED") is None
    # What is not known is a word to replace.
    assert find_remedy(UNUSED).text.startswith("run 'gcloud services enable SERVICE --project=7'")
    link = "Enable it by visiting https://console.cloud.google.com/apis/api/x.googleapis.com/over"
    assert "enable x.googleapis.com --project=7" in find_remedy(f"{UNUSED} {link}").text


def test_the_account_of_a_job_is_granted_what_its_program_needs():
    text = "Permission 'iam.serviceAccounts.getAccessToken' denied on resource"
    assert "--member=user:$(gcloud config get account)" in find_remedy(text).text
    assert "--member=serviceAccount:ACCOUNT_OF_THE_JOB" in find_remedy(text, in_job=True).text


def test_a_key_of_cloud_kms_is_granted_to_the_service_agent_that_uses_it():
    agent = "service-123@gcp-sa-aiplatform.iam.gserviceaccount.com"
    key = "projects/q/locations/europe-west4/keyRings/ring/cryptoKeys/disk-key"
    permission = "cloudkms.cryptoKeyVersions.useToEncrypt"
    text = f"Service account {agent} does not have {permission} permission on {key}."
    command = (
        "have an administrator run 'gcloud kms keys add-iam-policy-binding disk-key "
        "--keyring=ring --location=europe-west4 --project=q --member=serviceAccount:{} "
        "--role=roles/cloudkms.cryptoKeyEncrypterDecrypter'"
    )
    assert find_remedy(text).text == command.format(agent)
    denied = f"Permission '{permission}' denied on resource '{key}' (or it may not exist)."
    assert find_remedy(denied).text == command.format("AGENT")


def test_a_permission_is_found_where_google_names_one():
    for text, permission in {
        "Permission 'aiplatform.customJobs.create' denied": "aiplatform.customJobs.create",
        "a@b.c-d.edu does not have storage.objects.get access": "storage.objects.get",
        "User does not have bigquery.jobs.create permission in": "bigquery.jobs.create",
        "Required 'compute.networks.use' permission for 'n'": "compute.networks.use",
        "ann@students.uni.edu may not do that at console.cloud.google.com": "",
        "attempting to use service aiplatform.googleapis.com.": "",
        "no permission at a.b.c@d.e": "",
    }.items():
        assert permission_in(text) == permission


@given(some.text() | some.sampled_from([UNUSED, "createOnPush", "{x}"]), some.sampled_from(CODES))
def test_any_message_has_a_remedy_in_one_line_or_none(message, code):
    remedy = find_remedy(message, code, {"project": "{0}", "message": message})
    assert remedy is None or not re.search(r"[\n\r]|\{[a-z]", remedy.text)
