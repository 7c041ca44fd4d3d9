"""Who we are to a registry: Docker's configuration, its helpers, and Google's credentials."""

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
from distlaunch.image.registry.credentials import Credentials, credentials

ANN = base64.b64encode(b"ann:open sesame").decode()

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
    """Put a credential helper on PATH, a script of the shell's."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write_helper(name, script):
        file = tmp_path / f"docker-credential-{name}"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    return write_helper


@pytest.fixture(autouse=True)
def no_google(tmp_path, monkeypatch):
    """Have google-auth find nothing, and ask no metadata server."""
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


def test_nobody_in_particular():
    assert credentials("registry.example.com") is None


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
def test_a_name_and_a_password_in_dockers_configuration(write, key, host):
    file = write({"auths": {"other": {"auth": "eDp5"}, key: {"auth": ANN}}})
    assert credentials(host) == Credentials("ann", "open sesame", source=str(file))


def test_a_password_is_shown_nowhere(write):
    write({"auths": {"a.b": {"auth": ANN}}})
    assert "sesame" not in repr(credentials("a.b"))


def test_an_identity_token(write):
    write({"auths": {"a.b": {"auth": ANN, "identitytoken": TOKEN}}})
    assert credentials("a.b").identity_token == TOKEN


def test_a_home_without_a_configuration(monkeypatch, tmp_path):
    monkeypatch.delenv("DOCKER_CONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert credentials("a.b") is None
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(json.dumps({"auths": {"a.b": {"auth": ANN}}}))
    assert credentials("a.b").username == "ann"


@pytest.mark.parametrize("config", [{}, {"auths": None}, {"auths": {"a.b": {}}}, [], "null"])
def test_a_configuration_that_says_nothing_of_a_host(write, config):
    write(config)
    assert credentials("a.b") is None


@pytest.mark.parametrize("auth", ["!", "bm8gY29sb24=", "/w=="])
def test_a_broken_entry_is_told_with_its_place(write, auth):
    file = write({"auths": {"a.b": {"auth": auth}}})
    with pytest.raises(ImageError) as caught:
        credentials("a.b")
    assert str(caught.value) == (
        f"{file}: auths.a.b.auth is not NAME:PASSWORD in base64; run 'docker login a.b' again"
    )


def test_a_configuration_that_is_not_json(write):
    file = write("{")
    with pytest.raises(ImageError, match=f"^{file}: docker's configuration is not JSON"):
        credentials("a.b")


def test_a_configuration_that_cannot_be_read(docker_config):
    (docker_config / "config.json").mkdir()
    with pytest.raises(ImageError, match=r"cannot be read \(is a directory\)"):
        credentials("a.b")


ANSWERS = 'read host; echo "{\\"Username\\": \\"$host\\", \\"Secret\\": \\"s\\"}"'


@pytest.mark.parametrize(
    "config",
    [{"credsStore": "mine"}, {"credHelpers": {"a.b": "mine"}, "credsStore": "absent"}],
    ids=["credsStore", "credHelpers"],
)
def test_a_helper_is_asked_as_docker_asks_it(write, helper, config):
    write({**config, "auths": {"a.b": {"auth": ANN}}})
    helper("mine", ANSWERS)
    assert credentials("a.b") == Credentials("a.b", "s", source="docker-credential-mine")


def test_docker_hub_has_a_name_of_its_own_to_a_helper(write, helper):
    write({"credsStore": "mine"})
    helper("mine", ANSWERS)
    assert credentials("docker.io").username == "https://index.docker.io/v1/"


def test_a_helper_may_have_an_identity_token(write, helper):
    write({"credsStore": "mine"})
    helper("mine", 'echo \'{"Username": "<token>", "Secret": "a-token"}\'')
    assert credentials("a.b").identity_token == TOKEN


@pytest.mark.parametrize(
    "script",
    [
        "echo credentials not found in native keychain; exit 1",
        'echo \'{"Username": "", "Secret": ""}\'',
    ],
)
def test_a_helper_that_knows_nobody_leaves_it_to_the_file(write, helper, script):
    write({"credsStore": "mine", "auths": {"a.b": {"auth": ANN}}})
    helper("mine", script)
    assert credentials("a.b").username == "ann"
    assert credentials("c.d") is None


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "it is not on PATH"),
        ("echo 'no display' >&2; exit 2", "no display"),
        ("exit 3", "exit code 3"),
        ("echo yes", "its answer is not JSON"),
        ("echo '[]'", "its answer is not JSON"),
    ],
)
def test_a_helper_that_is_broken_is_named_with_the_remedy(write, helper, script, why):
    file = write({"credHelpers": {"a.b": "mine"}})
    if script is not None:
        helper("mine", script)
    with pytest.raises(ImageError) as caught:
        credentials("a.b")
    assert str(caught.value) == (
        f"credential helper broken: docker-credential-mine ({why}); install it, or take it out of "
        f"credHelpers and credsStore in {file}"
    )
    assert credentials("c.d") is None


class Tokens(http.server.BaseHTTPRequestHandler):
    """Google's server that gives out access tokens."""

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
    """A service account's key, for which a server here gives out tokens."""
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
def test_google_is_told_by_google_auth(google, write, host):
    write({"credHelpers": {host: "gcloud-that-is-not-here"}})
    assert credentials(host) == Credentials(
        "oauth2accesstoken",
        f"for {ROBOT}",
        member=f"serviceAccount:{ROBOT}",
        source="google's application default credentials",
    )


def test_nobody_but_google_is_told_by_google_auth(google):
    assert credentials("registry.example.com") is None


def test_what_docker_was_told_of_google_comes_first(google, write):
    write({"auths": {"us-docker.pkg.dev": {"auth": base64.b64encode(b"_json_key:{}").decode()}}})
    assert credentials("us-docker.pkg.dev").username == "_json_key"


def test_without_google_auth_the_helper_is_asked(write, helper):
    write({"credHelpers": {"us-docker.pkg.dev": "gcloud"}})
    helper("gcloud", ANSWERS)
    assert credentials("us-docker.pkg.dev").source == "docker-credential-gcloud"


def test_a_login_of_google_that_has_ended(google, monkeypatch):
    monkeypatch.setattr(Tokens, "status", 400)
    with pytest.raises(ImageError, match="run 'gcloud auth application-default login'") as caught:
        credentials("us-docker.pkg.dev")
    assert "The account is gone." in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_google_that_cannot_be_reached(google):
    google.shutdown()
    google.server_close()
    with pytest.raises(ImageError, match="cannot be reached; check the network"):
        credentials("us-docker.pkg.dev")


def test_a_key_of_googles_that_is_broken(tmp_path, monkeypatch):
    file = Path(tmp_path, "key.json")
    file.write_text("{")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(GoogleError, match=str(file)):
        credentials("us-docker.pkg.dev")
