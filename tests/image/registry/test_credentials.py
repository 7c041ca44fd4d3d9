"""Credentials for registries: Docker's configuration, its helpers, and google-auth."""

from __future__ import annotations

import base64
import http.server
import json
import os
import threading
import urllib.parse
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from distlaunch.errors import GoogleError, ImageError
from distlaunch.image.registry.credentials import Credentials, find_credentials

ANN = base64.b64encode(b"ann:open sesame").decode()

DOCKER = "docker's configuration"
TOKEN = "a-token"  # noqa: S105
ROBOT = "robot@my-project.iam.gserviceaccount.com"


@pytest.fixture
def write(docker_config):
    def write_config(config):
        file = docker_config / "config.json"
        file.write_text(config if isinstance(config, str) else json.dumps(config))
        return file

    return write_config


@pytest.fixture
def helper(tmp_path, monkeypatch):
    """Put a credential helper on PATH, a shell script."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write_helper(name, script):
        file = tmp_path / f"docker-credential-{name}"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    return write_helper


@pytest.fixture(autouse=True)
def no_google(tmp_path, monkeypatch):
    """Remove Google's credentials, and request no metadata server."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


def test_no_credentials():
    assert find_credentials("registry.example.com") is None


@pytest.mark.parametrize(
    ("key", "host"),
    [
        ("registry.example.com", "registry.example.com"),
        ("https://registry.example.com", "registry.example.com"),
        ("http://localhost:5000/v2/", "localhost:5000"),
        ("https://index.docker.io/v1/", "docker.io"),
        ("docker.io", "docker.io"),
    ],
)
def test_a_password_in_docker_configuration(write, key, host):
    write({"auths": {"other": {"auth": "eDp5"}, key: {"auth": ANN}}})
    assert find_credentials(host) == Credentials("ann", "open sesame", source=DOCKER)
    assert "sesame" not in repr(find_credentials(host))


def test_an_identity_token(write):
    write({"auths": {"a.b": {"auth": ANN, "identitytoken": TOKEN}}})
    assert find_credentials("a.b").identity_token == TOKEN


@pytest.mark.parametrize("config", [{}, {"auths": None}, {"auths": {"a.b": {}}}, "{"])
def test_a_configuration_without_the_registry(write, config):
    write(config)
    assert find_credentials("a.b") is None


@pytest.mark.parametrize("auth", ["!", "bm8gY29sb24=", "/w=="])
def test_a_malformed_entry(write, auth):
    write({"auths": {"a.b": {"auth": auth}}})
    with pytest.raises(ImageError, match=r"^docker's configuration has no usable credentials for"):
        find_credentials("a.b")


PRINT_HOST = 'read host; echo "{\\"Username\\": \\"$host\\", \\"Secret\\": \\"s\\"}"'


@pytest.mark.parametrize(
    "config",
    [{"credsStore": "mine"}, {"credHelpers": {"a.b": "mine"}, "credsStore": "absent"}],
    ids=["credsStore", "credHelpers"],
)
def test_a_credential_helper(write, helper, config):
    write({**config, "auths": {"a.b": {"auth": ANN}}})
    helper("mine", PRINT_HOST)
    assert find_credentials("a.b") == Credentials("a.b", "s", source=DOCKER)


def test_the_name_of_docker_hub_for_a_helper(write, helper):
    write({"credsStore": "mine"})
    helper("mine", PRINT_HOST)
    assert find_credentials("docker.io").username == "https://index.docker.io/v1/"


def test_an_identity_token_of_a_helper(write, helper):
    write({"credsStore": "mine"})
    helper("mine", 'echo \'{"Username": "<token>", "Secret": "a-token"}\'')
    assert find_credentials("a.b").identity_token == TOKEN


def test_a_helper_without_the_registry(write, helper):
    write({"credsStore": "mine", "auths": {"a.b": {"auth": ANN}}})
    helper("mine", "echo credentials not found in native keychain; exit 1")
    assert find_credentials("a.b").username == "ann"
    assert find_credentials("c.d") is None


@pytest.mark.parametrize(
    ("script", "reason"),
    [(None, "not installed or not available in PATH"), ("echo no display; exit 2", "no display")],
)
def test_a_broken_helper(write, helper, script, reason, recwarn):
    write({"credHelpers": {"a.b": "mine"}})
    if script is not None:
        helper("mine", script)
    with pytest.raises(ImageError) as caught:
        find_credentials("a.b")
    assert str(caught.value).startswith(
        "docker's configuration has no usable credentials for a.b ("
    )
    assert reason in str(caught.value)
    assert str(caught.value).endswith("); run 'docker login a.b', or correct ~/.docker/config.json")
    assert find_credentials("c.d") is None
    assert not recwarn


class Tokens(http.server.BaseHTTPRequestHandler):
    """Google's token server."""

    status = 200

    def log_message(self, *_):
        pass

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        claims = json.loads(base64.urlsafe_b64decode(form["assertion"][0].split(".")[1] + "=="))
        body = json.dumps(
            {"access_token": f"for {claims['iss']}", "expires_in": 3600}
            if self.status == 200
            else {"error": "invalid_grant", "error_description": "The account is gone."}
        ).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def private_key():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


@pytest.fixture
def google(tmp_path, monkeypatch, private_key):
    """A service account's key, and a token server for it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tokens)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    key = {
        "type": "service_account",
        "client_email": ROBOT,
        "private_key": private_key,
        "token_uri": f"http://127.0.0.1:{server.server_address[1]}/token",
    }
    (tmp_path / "key.json").write_text(json.dumps(key))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    monkeypatch.setattr(Tokens, "status", 200)
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("host", ["us-docker.pkg.dev", "gcr.io", "eu.gcr.io"])
def test_google_auth(google, write, host):
    write({"credHelpers": {host: "gcloud-that-is-not-here"}})
    assert find_credentials(host) == Credentials(
        "oauth2accesstoken",
        f"for {ROBOT}",
        member=f"serviceAccount:{ROBOT}",
        source="google's application default credentials",
    )


def test_google_auth_is_for_google_only(google):
    assert find_credentials("registry.example.com") is None


def test_docker_configuration_precedes_google_auth(google, write):
    write({"auths": {"us-docker.pkg.dev": {"auth": base64.b64encode(b"_json_key:{}").decode()}}})
    assert find_credentials("us-docker.pkg.dev").username == "_json_key"


def test_a_helper_follows_google_auth(write, helper):
    write({"credHelpers": {"us-docker.pkg.dev": "gcloud"}})
    helper("gcloud", PRINT_HOST)
    assert find_credentials("us-docker.pkg.dev").source == DOCKER


def test_an_expired_login_at_google(google, monkeypatch):
    monkeypatch.setattr(Tokens, "status", 400)
    with pytest.raises(ImageError, match="run 'gcloud auth application-default login'") as caught:
        find_credentials("us-docker.pkg.dev")
    assert "The account is gone." in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_google_cannot_be_reached(google):
    google.shutdown()
    google.server_close()
    with pytest.raises(ImageError, match="cannot be reached; check the network"):
        find_credentials("us-docker.pkg.dev")


def test_a_malformed_service_account_key(tmp_path, monkeypatch):
    file = Path(tmp_path, "key.json")
    file.write_text("{")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(GoogleError, match=str(file)):
        find_credentials("us-docker.pkg.dev")
