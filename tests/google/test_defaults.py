from __future__ import annotations

import json

import pytest

from distlaunch.google import auth

PROPERTIES = """\
[core]
account = ann@example.com
project = configured
[compute]
region = us-east1
"""


@pytest.fixture
def gcloud(no_credentials):
    """Write files of gcloud's."""

    def write(name: str, text: str) -> None:
        path = no_credentials / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    return write


def test_nothing_is_configured(no_credentials):
    assert (auth.default_project(), auth.default_region(), auth.credentials_file()) == (None,) * 3


def test_gclouds_configuration(gcloud):
    gcloud("configurations/config_default", PROPERTIES)
    assert (auth.default_project(), auth.default_region()) == ("configured", "us-east1")


def test_the_active_configuration_counts(gcloud, monkeypatch):
    gcloud("configurations/config_default", PROPERTIES)
    gcloud("configurations/config_work", "[core]\nproject = work\n[ai]\nregion = asia-east1\n")
    gcloud("configurations/config_play", "[core]\nproject = play\n")
    gcloud("active_config", "work\n")
    assert (auth.default_project(), auth.default_region()) == ("work", "asia-east1")
    monkeypatch.setenv("CLOUDSDK_ACTIVE_CONFIG_NAME", "play")
    assert (auth.default_project(), auth.default_region()) == ("play", None)


def test_the_region_of_ai_comes_before_that_of_machines(gcloud):
    gcloud("configurations/config_default", f"{PROPERTIES}[ai]\nregion = europe-west4\n")
    assert auth.default_region() == "europe-west4"


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("GOOGLE_CLOUD_PROJECT", auth.default_project),
        ("GCLOUD_PROJECT", auth.default_project),
        ("CLOUDSDK_CORE_PROJECT", auth.default_project),
        ("CLOUDSDK_AI_REGION", auth.default_region),
        ("GOOGLE_CLOUD_REGION", auth.default_region),
        ("CLOUDSDK_COMPUTE_REGION", auth.default_region),
    ],
)
def test_the_environment_comes_first(gcloud, monkeypatch, variable, expected):
    gcloud("configurations/config_default", PROPERTIES)
    monkeypatch.setenv(variable, "")
    assert expected() in ("configured", "us-east1")
    monkeypatch.setenv(variable, "content")
    assert expected() == "content"


@pytest.mark.parametrize(
    ("content", "project"),
    [
        ({"type": "service_account", "project_id": "theirs"}, "theirs"),
        ({"type": "authorized_user", "quota_project_id": "paying"}, "paying"),
        ({"type": "authorized_user"}, None),
        ({"project_id": 7}, None),
        ([], None),
    ],
)
def test_the_credentials_come_last(gcloud, content, project):
    gcloud("application_default_credentials.json", json.dumps(content))
    assert auth.default_project() == project
    gcloud("configurations/config_default", PROPERTIES)
    assert auth.default_project() == "configured"


def test_credentials_that_the_environment_names_come_before_the_usual_ones(gcloud, monkeypatch):
    gcloud("application_default_credentials.json", '{"project_id": "usual"}')
    assert auth.default_project() == "usual"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    assert auth.credentials_file() == "/nowhere.json"
    assert auth.default_project() is None


@pytest.mark.parametrize(
    "broken", ["no section = 1", "[core]\nproject", "[core]\n[core]\n", "\x00"]
)
def test_broken_files_are_ignored(gcloud, broken, no_credentials):
    gcloud("configurations/config_default", broken)
    gcloud("application_default_credentials.json", broken)
    assert (auth.default_project(), auth.default_region()) == (None, None)
    (no_credentials / "active_config").write_bytes(b"\xff")
    assert auth.default_region() is None


def test_a_percent_sign_in_gclouds_files_means_nothing(gcloud):
    gcloud("configurations/config_default", "[core]\nproject = p%(x)s\n")
    assert auth.default_project() == "p%(x)s"
