"""Login at registries: Basic, and Bearer tokens."""

from __future__ import annotations

import os

import pytest
import registries
from fake_registry import SERVICE, FakeRegistry, Fault
from registries import QUICK, Recipe, tar_of

from distlaunch.errors import ImageError
from distlaunch.image.reference import Reference
from distlaunch.image.registry.append import append_layers
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.credentials import Credentials
from distlaunch.image.registry.manifests import ImageSettings
from distlaunch.image.registry.transport import Blob, digest_of

USERS = {"ann": "open sesame", "<token>": "an identity"}
# bcrypt of the password, the only hash that Docker's registry supports.
HTPASSWD = "ann:$2b$04$SvLOa/.6uFIuG.d6bZaGsOWGLaMFu2cVoWj0Md0NgNEtZunFEmAvO\n"
ANN = Credentials("ann", USERS["ann"], source="config.json")
STRANGER = Credentials("eve", "x", source="config.json")
IDENTITY = Credentials(identity_token=USERS["<token>"], source="config.json")
WRONG_IDENTITY = Credentials(identity_token="another", source="config.json")  # noqa: S106


def open_registry(reference, credentials):
    return Registry(reference, policy=QUICK, credentials=lambda _: credentials)


def push(reference, credentials=ANN, **recipe):
    return Recipe(**recipe).push(reference, credentials=lambda _: credentials)


def upload_error(reference, credentials):
    with open_registry(reference, credentials) as registry, pytest.raises(ImageError) as caught:
        registry.upload(Blob.of_bytes(b"x"))
    return str(caught.value)


@pytest.fixture
def basic():
    with FakeRegistry(login="basic", users=USERS) as running:
        yield running.host


@pytest.fixture
def docker_basic(registry_program, tmp_path):
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    auth = f"auth: {{htpasswd: {{realm: a, path: {tmp_path}/htpasswd}}}}\n"
    with registries.serving(tmp_path, auth=auth) as host:
        yield host


@pytest.fixture
def bearer():
    with FakeRegistry(login="bearer", users=USERS) as running:
        yield running


@pytest.mark.parametrize("fixture", ["basic", "docker_basic"])
def test_basic(request, fixture):
    host = request.getfixturevalue(fixture)
    reference = registries.fresh(host)
    digest = push(reference)
    with open_registry(reference, ANN) as registry:
        assert registry.digest() == digest
    remedy = f"run 'docker login {host}'"
    for credentials, end in (
        (None, remedy),
        (STRANGER, f"the credentials from config.json do not suffice, {remedy} with others"),
    ):
        assert upload_error(reference, credentials) == f"push of {reference.name} denied; {end}"
        with open_registry(reference, credentials) as registry, pytest.raises(ImageError):
            registry.digest()


def test_tokens_are_requested_with_a_password_or_an_identity_and_kept(bearer):
    push(registries.fresh(bearer.host))
    assert len(bearer.token_requests) <= 2
    assert bearer.token_requests[0]["service"] == [SERVICE]
    bearer.token_requests.clear()
    push(registries.fresh(bearer.host), IDENTITY)
    assert {each["refresh_token"][0] for each in bearer.token_requests} == {USERS["<token>"]}


def test_an_anonymous_token_allows_to_pull_only(bearer):
    reference = registries.fresh(bearer.host)
    digest = push(reference)
    with open_registry(reference, None) as registry:
        assert registry.digest() == digest
    assert bearer.token_requests[-1]["scope"] == [f"repository:{reference.path}:pull"]
    assert upload_error(reference, None) == (
        f"push of {reference.name} denied (token); run 'docker login {bearer.host}'"
    )


@pytest.mark.parametrize("credentials", [STRANGER, WRONG_IDENTITY])
def test_rejected_credentials(bearer, credentials):
    assert upload_error(registries.fresh(bearer.host), credentials) == (
        f"{bearer.host} rejects the credentials from config.json (401); "
        f"run 'docker login {bearer.host}'"
    )


def test_a_mount_requests_a_token_for_both_repositories(bearer):
    base, target = registries.fresh(bearer.host, "base"), registries.fresh(bearer.host)
    push(base, layers=[tar_of({f"{n}": os.urandom(1000)}) for n in range(10)])
    bearer.token_requests.clear()
    append_layers(base, target, [], ImageSettings(), policy=QUICK, credentials=lambda _: ANN)
    scopes = bearer.token_requests[-1]["scope"]
    assert f"repository:{base.path}:pull" in scopes
    assert f"repository:{target.path}:pull,push" in scopes
    assert len(bearer.token_requests) <= 6  # not one for each layer
    with open_registry(target, ANN) as registry:
        assert len(registry.image().manifest["layers"]) == 10


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT"])
def test_an_expired_token_is_renewed(bearer, method):
    data = os.urandom(3_000_000)
    with open_registry(registries.fresh(bearer.host), ANN) as registry:
        registry.upload(Blob.of_bytes(b"first"))
        bearer.token_requests.clear()

        def expire(request):
            if request.method == method:
                bearer.tokens.clear()
                bearer.rule = lambda _: None

        bearer.rule = expire
        registry.upload(Blob.of_bytes(data))
        assert b"".join(registry.blob(digest_of(data), len(data)).chunks()) == data
    assert len(bearer.token_requests) == 1


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
def test_a_challenge_that_cannot_be_answered(challenge, error):
    fault = Fault(401, headers={"WWW-Authenticate": challenge})
    with FakeRegistry(lambda _: fault) as refusing:
        assert error in upload_error(Reference.parse(f"{refusing.host}/a"), ANN)
        assert len(refusing.requests) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(503), "(503); try again later"),
        (Fault(200, b"[]"), "returns no token for "),
        (Fault(200, b"{}"), "returns no token for "),
        (Fault(403), "rejects the credentials from config.json (403)"),
        (Fault(drop="request"), "the connection to "),
    ],
)
def test_a_token_server_that_fails(fault, error):
    with FakeRegistry(lambda _: fault) as server:
        challenge = {"WWW-Authenticate": f'Bearer realm="http://{server.host}/v2/token"'}
        with FakeRegistry(lambda _: Fault(401, headers=challenge)) as refusing:
            assert error in upload_error(Reference.parse(f"{refusing.host}/a"), ANN)


def test_credentials_are_sent_to_the_registry_only():
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
        with open_registry(registries.fresh(registry.host), ANN) as images:
            images.digest()  # logs in
            assert b"".join(images.blob(digest_of(b"blob"), 4).chunks()) == b"blob"
            images.upload(Blob.of_bytes(b"other"))
        assert "Authorization" in registry.requests[-1].headers
        assert storage.count("GET") == storage.count("PUT") == 1
        assert not any("Authorization" in each.headers for each in storage.requests)


def test_netrc_does_not_replace_the_credentials(basic, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login eve password x\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert push(registries.fresh(basic))
