"""Credentials for registries: Docker's configuration, its helpers, and google-auth."""

from __future__ import annotations

import base64
import json
import os
from unittest.mock import Mock

import pytest
from google.auth.exceptions import RefreshError, TransportError

from distlaunch.docker_client import connect_docker
from distlaunch.engines.vertex import auth
from distlaunch.errors import ImageError
from distlaunch.image.reference import Reference
from distlaunch.image.registry.credentials import Credentials, find_credentials
from distlaunch.image.registry.errors import denied

ANN = base64.b64encode(b"ann:open sesame").decode()
DOCKER = "docker's configuration"
GOOGLE = "us-docker.pkg.dev"
ROBOT = "robot@my-project.iam.gserviceaccount.com"
PRINT_HOST = 'read host; echo "{\\"Username\\": \\"$host\\", \\"Secret\\": \\"s\\"}"'


@pytest.fixture
def write(docker_config):
    def write_config(config):
        text = config if isinstance(config, str) else json.dumps(config)
        (docker_config / "config.json").write_text(text)

    return write_config


@pytest.fixture
def helper(tmp_path, monkeypatch):
    """Put the credential helper ``mine`` on PATH, a shell script."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write_helper(script):
        file = tmp_path / "docker-credential-mine"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    return write_helper


@pytest.fixture(autouse=True)
def no_google(tmp_path, monkeypatch):
    """Remove Google's credentials, and request no metadata server."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


def test_a_password_in_docker_configuration(write):
    for key, host in (
        ("registry.example.com", "registry.example.com"),
        ("https://registry.example.com", "registry.example.com"),
        ("http://localhost:5000/v2/", "localhost:5000"),
        ("https://index.docker.io/v1/", "docker.io"),
        ("docker.io", "docker.io"),
    ):
        write({"auths": {"other": {"auth": "eDp5"}, key: {"auth": ANN}}})
        assert find_credentials(host) == Credentials("ann", "open sesame", source=DOCKER)
        assert "sesame" not in repr(find_credentials(host))


def test_a_configuration_without_the_registry(write):
    token = {"auth": ANN, "identitytoken": "a-token"}  # which is not used
    for config in ({}, {"auths": None}, {"auths": {"a.b": {}}}, {"auths": {"a.b": token}}):
        write(config)
        assert find_credentials("a.b") is None


def test_a_credential_helper(write, helper):
    helper(PRINT_HOST)
    for config in ({"credsStore": "mine"}, {"credHelpers": {"a.b": "mine"}, "credsStore": "no"}):
        write({**config, "auths": {"a.b": {"auth": ANN}}})
        assert find_credentials("a.b") == Credentials("a.b", "s", source=DOCKER)
    write({"credsStore": "mine"})
    assert find_credentials("docker.io").username == "https://index.docker.io/v1/"


def test_a_helper_without_the_registry(write, helper):
    write({"credsStore": "mine", "auths": {"a.b": {"auth": ANN}}})
    helper("echo credentials not found in native keychain; exit 1")
    assert find_credentials("a.b").username == "ann"
    assert find_credentials("c.d") is None


def test_a_helper_that_fails(write, helper, recwarn):
    write({"credHelpers": {"a.b": "mine"}})
    helper("echo no; echo display; exit 2")
    with pytest.raises(ImageError) as caught:
        find_credentials("a.b")
    text = str(caught.value)
    assert text.startswith("docker's configuration has no usable credentials for a.b (")
    assert "no display" in text
    assert text.endswith("); run 'docker login a.b', or correct ~/.docker/config.json")
    assert not recwarn


@pytest.mark.parametrize(
    ("content", "key"),
    [({"credsStore": "gone"}, "credsStore"), ({"credHelpers": {"a.b": "gone"}}, "credHelpers")],
)
def test_a_helper_that_is_not_installed_is_left_out(write, docker_config, recwarn, content, key):
    write({**content, "auths": {"a.b": {"auth": ANN}}})
    assert find_credentials("a.b").username == "ann"
    write(content)
    assert find_credentials("a.b") is None
    assert denied(Reference.parse("a.b/c"), None, "", pushing=False).line == (
        f"pull of a.b/c denied; remove {key} (docker-credential-gone is not installed) from "
        f"{docker_config}/config.json, and run 'docker login a.b'"
    )
    assert not recwarn


@pytest.mark.parametrize(
    "content",
    [
        *("[]", "7", "{", "\0", '{"auths": [1]}', '{"auths": {"a": {"auth": 7}}}'),
        '{"auths": {"a.b": {"auth": "bm8gY29sb24="}}}',
    ],
)
def test_a_broken_configuration_is_named(write, docker_config, content):
    write(content)
    for look_up in (lambda: find_credentials("a.b"), connect_docker):
        with pytest.raises(ImageError, match=r"; correct the file or remove it$") as caught:
            look_up()
        assert str(caught.value).startswith(f"{docker_config}/config.json: not a configuration")
        assert "\n" not in str(caught.value)


@pytest.fixture
def google(monkeypatch):
    """Replace the application default credentials, with an error instead of a token."""

    def replace(error=None):
        account = Mock(token="a-token", service_account_email=ROBOT)  # noqa: S106
        account.refresh.side_effect = error
        monkeypatch.setattr(auth, "load_credentials", lambda _: account)

    return replace


def test_google_auth(google, write):
    google()
    for host in (GOOGLE, "gcr.io", "eu.gcr.io"):
        write({"credHelpers": {host: "gcloud-that-is-not-here"}})
        assert find_credentials(host) == Credentials(
            "oauth2accesstoken",
            "a-token",
            member=f"serviceAccount:{ROBOT}",
            source="google's application default credentials",
        )
    assert find_credentials("registry.example.com") is None


def test_docker_configuration_precedes_google_auth_and_a_helper_follows(google, write, helper):
    write({"credHelpers": {GOOGLE: "mine"}})
    helper(PRINT_HOST)
    assert find_credentials(GOOGLE).source == DOCKER
    google()
    assert find_credentials(GOOGLE).username == "oauth2accesstoken"
    write({"auths": {GOOGLE: {"auth": base64.b64encode(b"_json_key:{}").decode()}}})
    assert find_credentials(GOOGLE).username == "_json_key"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            RefreshError("The account\nis gone."),
            r"credentials \(The account is gone\); run 'gcloud",
        ),
        (TransportError("x"), r"^cannot get a token \(x\)$"),
    ],
)
def test_google_returns_no_token(google, error, message):
    google(error)
    with pytest.raises(ImageError, match=message):
        find_credentials(GOOGLE)


def test_a_malformed_service_account_key(tmp_path, monkeypatch):
    (tmp_path / "key.json").write_text("{")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    with pytest.raises(ImageError, match=str(tmp_path / "key.json")):
        find_credentials(GOOGLE)
