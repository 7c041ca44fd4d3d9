"""Login at registries: Basic, and Bearer tokens."""

from __future__ import annotations

import os

import images
import pytest
import requests
from fake_registry import SERVICE, FakeRegistry, Fault
from images import opened as open_registry

from distlaunch.errors import ImageError
from distlaunch.image.reference import Reference
from distlaunch.image.registry import transport
from distlaunch.image.registry.transport import Blob, digest_of

USERS = {"ann": "open sesame"}
CHALLENGED = "the credentials from docker's configuration"


def upload_error(reference):
    with open_registry(reference) as registry, pytest.raises(ImageError) as caught:
        registry.upload(Blob.of_bytes(b"x"))
    return str(caught.value)


@pytest.fixture
def private(request, log_in):
    """A registry of a kind of login, which Docker's configuration has."""
    with FakeRegistry(login=getattr(request, "param", "basic"), users=USERS) as running:
        log_in(running.host, USERS["ann"])
        yield running


with_tokens = pytest.mark.parametrize("private", ["bearer"], indirect=True)


def test_basic(private, log_in, docker_config):
    host, reference = private.host, images.fresh(private.host)
    digest = images.push(reference)
    with open_registry(reference) as registry:
        assert registry.digest() == digest
    denied, remedy = f"push of {reference.name} denied; ", f"run 'docker login {host}'"
    log_in(host, "x", user="eve")
    assert upload_error(reference) == f"{denied}{CHALLENGED} do not suffice, {remedy} with others"
    (docker_config / "config.json").unlink()
    assert upload_error(reference) == f"{denied}{remedy}"
    with open_registry(reference) as registry, pytest.raises(ImageError):
        registry.digest()


@with_tokens
def test_tokens_are_kept_and_anonymous_ones_allow_to_pull_only(private, docker_config, log_in):
    reference = images.fresh(private.host)
    digest = images.push(reference)
    assert 0 < len(private.token_requests) <= 2
    assert private.token_requests[0]["service"] == [SERVICE]
    (docker_config / "config.json").unlink()
    with open_registry(reference) as registry:
        assert registry.digest() == digest
    assert private.token_requests[-1]["scope"] == [f"repository:{reference.path}:pull"]
    assert upload_error(reference) == (
        f"push of {reference.name} denied (token); run 'docker login {private.host}'"
    )
    log_in(private.host, "x", user="eve")
    assert upload_error(reference) == (
        f"pull of {reference.name} denied (401); {CHALLENGED} do not suffice, "
        f"run 'docker login {private.host}' with others"
    )


@with_tokens
@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT"])
def test_an_expired_token_is_renewed(private, method):
    data = os.urandom(3_000_000)
    with open_registry(images.fresh(private.host)) as registry:
        registry.upload(Blob.of_bytes(b"first"))
        private.token_requests.clear()

        def expire(request):
            if request.method == method:
                private.tokens.clear()
                private.rule = lambda _: None

        private.rule = expire
        registry.upload(Blob.of_bytes(data))
        assert b"".join(registry.blob(digest_of(data), len(data)).chunks()) == data
    assert len(private.token_requests) == 1


@pytest.mark.parametrize(
    ("challenge", "error"),
    [
        ('Bearer realm="http://example.com/token"', "which is not secure"),
        ("Bearer", "which is not secure"),
        ('Basic realm="a", Bearer realm="ftp://x"', "is 'ftp://x', which is not secure"),
        ("Negotiate", "push of "),
        ("", "push of "),
    ],
)
def test_a_challenge_that_cannot_be_answered(challenge, error, log_in):
    fault = Fault(401, headers={"WWW-Authenticate": challenge})
    with FakeRegistry(lambda _: fault) as refusing:
        log_in(refusing.host, "x")
        assert error in upload_error(Reference.parse(f"{refusing.host}/a"))
        assert len(refusing.requests) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(503), "(503); try again later"),
        (Fault(200, b"[]"), "returns no token for "),
        (Fault(200, b"{}"), "returns no token for "),
        (Fault(403), f"denied (403); {CHALLENGED} do not suffice"),
        (Fault(drop="request"), "the connection to "),
    ],
)
def test_a_token_server_that_fails(fault, error, log_in):
    with FakeRegistry(lambda _: fault) as server:
        challenge = {"WWW-Authenticate": f'Bearer realm="http://{server.host}/v2/token"'}
        with FakeRegistry(lambda _: Fault(401, headers=challenge)) as refusing:
            log_in(refusing.host, "x")
            assert error in upload_error(Reference.parse(f"{refusing.host}/a"))


def test_a_proxys_page_in_place_of_googles_token_server(monkeypatch):
    monkeypatch.setattr(transport, "find_credentials", lambda _: None)
    challenge, page = requests.Response(), requests.Response()
    challenge.headers["WWW-Authenticate"] = 'Bearer realm="https://us-docker.pkg.dev/v2/token"'
    page.status_code, page.url = 403, "https://us-docker.pkg.dev/v2/token?scope=x"
    page._content = b"<html>Blocked by policy</html>"
    reference = Reference.parse("us-docker.pkg.dev/p/r/i")
    login = transport.Authenticator(reference, lambda *_, **__: page)
    with pytest.raises(ImageError, match=r"answers 403 with a page that is not Google's \(Blocked"):
        login.answer(challenge, None)


def test_credentials_are_sent_to_the_registry_only(log_in):
    """A registry may redirect to a blob's storage, on another host."""
    with (
        FakeRegistry(lambda _: Fault(200, b"blob")) as storage,
        FakeRegistry(login="basic", users=USERS) as registry,
    ):
        redirect = Fault(307, headers={"Location": f"http://{storage.host}/x"})
        location = {"Location": f"http://{storage.host}/upload"}

        def rule(request):
            if request.method == "GET" and "blobs/" in request.path:
                return redirect
            return Fault(202, headers=location) if request.method == "POST" else None

        registry.rule = rule
        log_in(registry.host, USERS["ann"])
        with open_registry(images.fresh(registry.host)) as opened:
            opened.digest()  # logs in
            assert b"".join(opened.blob(digest_of(b"blob"), 4).chunks()) == b"blob"
            opened.upload(Blob.of_bytes(b"other"))
        assert "Authorization" in registry.requests[-1].headers
        assert storage.count("GET") == storage.count("PUT") == 1
        assert not any("Authorization" in each.headers for each in storage.requests)


def test_netrc_does_not_replace_the_credentials(private, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login eve password x\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert images.push(images.fresh(private.host))
