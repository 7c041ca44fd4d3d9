from __future__ import annotations

import json

import pytest

from distlaunch.google import defaults

PROPERTIES = """\
[core]
account = ann@example.com
project = configured
[compute]
region = us-east1
"""


@pytest.fixture
def gcloud(nobody):
    """Write files of gcloud's."""

    def write(name: str, text: str) -> None:
        path = nobody / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    return write


def test_nothing_says_anything(nobody):
    assert (defaults.project_id(), defaults.region(), defaults.credentials_file()) == (None,) * 3


def test_gclouds_configuration(gcloud):
    gcloud("configurations/config_default", PROPERTIES)
    assert (defaults.project_id(), defaults.region()) == ("configured", "us-east1")


def test_the_active_configuration_counts(gcloud, monkeypatch):
    gcloud("configurations/config_default", PROPERTIES)
    gcloud("configurations/config_work", "[core]\nproject = work\n[ai]\nregion = asia-east1\n")
    gcloud("configurations/config_play", "[core]\nproject = play\n")
    gcloud("active_config", "work\n")
    assert (defaults.project_id(), defaults.region()) == ("work", "asia-east1")
    monkeypatch.setenv("CLOUDSDK_ACTIVE_CONFIG_NAME", "play")
    assert (defaults.project_id(), defaults.region()) == ("play", None)


def test_the_region_of_ai_comes_before_that_of_machines(gcloud):
    gcloud("configurations/config_default", f"{PROPERTIES}[ai]\nregion = europe-west4\n")
    assert defaults.region() == "europe-west4"


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("GOOGLE_CLOUD_PROJECT", defaults.project_id),
        ("GCLOUD_PROJECT", defaults.project_id),
        ("CLOUDSDK_CORE_PROJECT", defaults.project_id),
        ("CLOUDSDK_AI_REGION", defaults.region),
        ("GOOGLE_CLOUD_REGION", defaults.region),
        ("CLOUDSDK_COMPUTE_REGION", defaults.region),
    ],
)
def test_the_environment_comes_first(gcloud, monkeypatch, variable, said):
    gcloud("configurations/config_default", PROPERTIES)
    monkeypatch.setenv(variable, "")
    assert said() in ("configured", "us-east1")
    monkeypatch.setenv(variable, "told")
    assert said() == "told"


@pytest.mark.parametrize(
    ("told", "project"),
    [
        ({"type": "service_account", "project_id": "theirs"}, "theirs"),
        ({"type": "authorized_user", "quota_project_id": "paying"}, "paying"),
        ({"type": "authorized_user"}, None),
        ({"project_id": 7}, None),
        ([], None),
    ],
)
def test_the_credentials_come_last(gcloud, told, project):
    gcloud("application_default_credentials.json", json.dumps(told))
    assert defaults.project_id() == project
    gcloud("configurations/config_default", PROPERTIES)
    assert defaults.project_id() == "configured"


def test_credentials_that_the_environment_names_come_before_the_usual_ones(gcloud, monkeypatch):
    gcloud("application_default_credentials.json", '{"project_id": "usual"}')
    assert defaults.project_id() == "usual"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    assert defaults.credentials_file() == "/nowhere.json"
    assert defaults.project_id() is None


@pytest.mark.parametrize(
    "broken", ["no section = 1", "[core]\nproject", "[core]\n[core]\n", "\x00"]
)
def test_broken_files_say_nothing(gcloud, broken, nobody):
    gcloud("configurations/config_default", broken)
    gcloud("application_default_credentials.json", broken)
    assert (defaults.project_id(), defaults.region()) == (None, None)
    (nobody / "active_config").write_bytes(b"\xff")
    assert defaults.region() is None


def test_a_percent_sign_in_gclouds_files_means_nothing(gcloud):
    gcloud("configurations/config_default", "[core]\nproject = p%(x)s\n")
    assert defaults.project_id() == "p%(x)s"
