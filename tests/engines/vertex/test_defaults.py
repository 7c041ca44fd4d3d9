from __future__ import annotations

import json

import pytest

from distlaunch.engines.vertex import auth

PROPERTIES = """\
[core]
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


def test_the_active_configuration_of_gcloud_counts(gcloud, monkeypatch):
    assert (auth.default_project(), auth.default_region(), auth.credentials_file()) == (None,) * 3
    gcloud("configurations/config_default", PROPERTIES)
    assert (auth.default_project(), auth.default_region()) == ("configured", "us-east1")
    gcloud("configurations/config_work", "[core]\nproject = work\n[ai]\nregion = eu%(x)s\n")
    gcloud("configurations/config_play", f"{PROPERTIES}[ai]\nregion = asia-east1\n")
    gcloud("active_config", "work\n")
    assert (auth.default_project(), auth.default_region()) == ("work", "eu%(x)s")
    monkeypatch.setenv("CLOUDSDK_ACTIVE_CONFIG_NAME", "play")
    assert auth.default_region() == "asia-east1"


@pytest.mark.parametrize(
    ("default", "variable"),
    [
        (auth.default_project, "GOOGLE_CLOUD_PROJECT"),
        (auth.default_project, "GCLOUD_PROJECT"),
        (auth.default_project, "CLOUDSDK_CORE_PROJECT"),
        (auth.default_region, "CLOUDSDK_AI_REGION"),
        (auth.default_region, "GOOGLE_CLOUD_REGION"),
        (auth.default_region, "CLOUDSDK_COMPUTE_REGION"),
    ],
)
def test_the_environment_comes_first(gcloud, monkeypatch, default, variable):
    gcloud("configurations/config_default", PROPERTIES)
    monkeypatch.setenv(variable, "")
    assert default() in ("configured", "us-east1")
    monkeypatch.setenv(variable, "other")
    assert default() == "other"


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
def test_the_credentials_come_last_and_those_of_the_environment_first(
    gcloud, monkeypatch, content, project
):
    gcloud("application_default_credentials.json", json.dumps(content))
    assert auth.default_project() == project
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    assert (auth.credentials_file(), auth.default_project()) == ("/nowhere.json", None)
    gcloud("configurations/config_default", PROPERTIES)
    assert auth.default_project() == "configured"


@pytest.mark.parametrize(
    "broken", ["no section = 1", "[core]\nproject", "[core]\n[core]\n", "\x00"]
)
def test_broken_files_are_ignored(gcloud, broken, no_credentials):
    gcloud("configurations/config_default", broken)
    gcloud("application_default_credentials.json", broken)
    assert (auth.default_project(), auth.default_region()) == (None, None)
    (no_credentials / "active_config").write_bytes(b"\xff")
    assert auth.default_region() is None


def test_the_metadata_server_of_google_s_machines_names_the_project(gcloud, monkeypatch):
    monkeypatch.setattr("google.auth.default", lambda: (None, "of-the-machine"))
    assert auth.default_project() is None  # no request from another machine
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    assert auth.default_project() == "of-the-machine"
    gcloud("application_default_credentials.json", "{}")
    assert auth.default_project() is None
