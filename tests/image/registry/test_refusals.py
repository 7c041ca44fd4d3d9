"""What is told of a registry that refuses or is not there: one line with the remedy."""

from __future__ import annotations

import json
import socket
import time

import pytest
import registries
import requests
from registries import QUICK, Fault

from distlaunch.errors import ImageError
from distlaunch.image.reference import Reference
from distlaunch.image.registry import blobs, refusals
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.credentials import Credentials
from distlaunch.image.registry.transport import Patience

GOOGLE = "us-central1-docker.pkg.dev/my-project/training/digits"
ROBOT = Credentials("oauth2accesstoken", "t", member="serviceAccount:r@p.iam.gserviceaccount.com")
USER = Credentials("oauth2accesstoken", "t", source="google")


def nobody(_host):
    return None


def error(code, message="", detail=None):
    inner = {"code": code, "message": message}
    return json.dumps(
        {"errors": [inner if detail is None else {**inner, "detail": detail}]}
    ).encode()


def told(door, status, body, reference, who=None, *, pushing=True):
    """Return what is told of a real answer."""
    way = door(lambda _: Fault(status=status, body=body))
    with requests.get(f"http://{way.host}/", timeout=5) as response:
        refusal = refusals.refused(response, Reference.parse(reference), who, pushing=pushing)
    assert refusal.status == status
    assert len(refusal.lines) == 1
    assert refusal.lines[0][0].islower()
    return str(refusal)


@pytest.mark.parametrize(
    ("who", "member"),
    [
        (USER, "user:$(gcloud config get account)"),
        (ROBOT, "serviceAccount:r@p.iam.gserviceaccount.com"),
    ],
)
@pytest.mark.parametrize("status", [401, 403])
def test_who_may_not_push_to_google_is_given_the_command(door, status, who, member):
    said = "Permission 'artifactregistry.repositories.uploadArtifacts' denied"
    assert told(door, status, error("DENIED", said), GOOGLE, who) == (
        f"push of {GOOGLE} denied ({said}); run 'gcloud artifacts repositories "
        "add-iam-policy-binding training --project=my-project --location=us-central1 "
        f"--member={member} --role=roles/artifactregistry.writer'"
    )


def test_who_may_not_pull_from_google_is_given_the_command(door):
    text = told(door, 403, b"", GOOGLE, USER, pushing=False)
    assert text.startswith(f"pull of {GOOGLE} denied; run 'gcloud artifacts repositories add-iam-")
    assert text.endswith("--role=roles/artifactregistry.reader'")


def test_an_organisations_project_is_named_as_gcloud_names_it(door):
    text = told(door, 403, b"", "eu-docker.pkg.dev/example.com/p/r/i", USER)
    assert "binding r --project=example.com:p --location=eu " in text


def test_container_registry_has_its_rights_in_the_project(door):
    text = told(door, 403, b"", "gcr.io/my-project/digits", USER)
    assert "gcloud projects add-iam-policy-binding my-project --member=" in text


def test_nobody_is_told_to_log_in(door):
    assert told(door, 401, b"", GOOGLE) == (
        f"push of {GOOGLE} denied; run 'gcloud auth application-default login'"
    )
    assert told(door, 401, b"", "a.b/c").endswith("; run 'docker login a.b'")


def test_a_repository_of_googles_that_is_missing_is_made_with_the_command(door):
    text = told(door, 404, error("NAME_UNKNOWN", 'Repository "training" not found'), GOOGLE, USER)
    assert text == (
        f'there is no repository {GOOGLE} (Repository "training" not found); run '
        "'gcloud artifacts repositories create training --repository-format=docker "
        "--project=my-project --location=us-central1'"
    )


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, b"", "there is no repository a.b/c; make it in a.b, or check the name"),
        (413, b"", "a.b takes no layer of this size; put less into the image, or raise the"),
        (
            500,
            error("UNKNOWN", "unknown error", {"Path": "/d", "Err": "no space left on device"}),
            "the disk of the registry a.b is full (unknown error: no space left on device); make",
        ),
        (507, b"", "the disk of the registry a.b is full; make room there"),
        (429, error("TOOMANYREQUESTS", "slow\ndown"), "a.b takes no more requests for now (slow "),
        (500, b"<html>", "the registry a.b fails with 500; try again later"),
        (503, b"[]", "the registry a.b fails with 503; try again later"),
        (400, error("DIGEST_INVALID", "x" * 500), f"a.b refuses a.b/c:1 with 400 ({'x' * 200})"),
        (418, b'{"errors": [1]}', "a.b refuses a.b/c:1 with 418"),
        (418, b'{"errors": [{"code": "X"}]}', "a.b refuses a.b/c:1 with 418 (X)"),
    ],
)
def test_other_refusals(door, status, body, expected):
    assert told(door, status, body, "a.b/c:1").startswith(expected)


def test_an_image_that_is_not_there(registry):
    reference = registries.fresh(registry)
    with Registry(reference, patience=QUICK, find=nobody) as images:
        assert images.digest() is None
        assert images.digest("other") is None
        with pytest.raises(ImageError) as caught:
            images.image()
    assert str(caught.value).startswith(f"there is no image {reference} in {reference.host} (")


def pulled(reference, patience=QUICK):
    with Registry(Reference.parse(reference), patience=patience, find=nobody) as images:
        images.image()


def said_of(reference, patience=QUICK):
    with pytest.raises(ImageError) as caught:
        pulled(reference, patience)
    assert len(caught.value.lines) == 1
    return str(caught.value)


def test_nothing_listens():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert said_of(f"localhost:{port}/a") == (
        f"nothing listens at localhost:{port}; start the registry, or check the name in "
        f"localhost:{port}/a"
    )


def test_a_host_that_is_unknown(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert said_of("registry.invalid/a") == (
        "the registry's host 'registry.invalid' is unknown; check the name in registry.invalid/a"
    )


def test_a_proxy_that_is_not_there(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert said_of("registry.invalid/a") == (
        "the proxy before registry.invalid cannot be reached; check HTTPS_PROXY and NO_PROXY"
    )


def test_a_proxy_is_not_asked_for_this_machine(registry, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert registries.Recipe().push(registries.fresh(registry))


def test_a_registry_that_hangs(door):
    way = door(lambda _: Fault(hang=30))
    text = said_of(f"{way.host}/a", Patience(connect=1, read=0.2, delays=(0.01,)))
    assert (
        text == f"the registry {way.host} does not answer; check it and the network, then try again"
    )
    assert len(way.requests) == 1  # nobody waits twice for who has never answered


def test_a_registry_that_fails_for_good(door):
    way = door(lambda _: Fault(status=502, body=b"<html>"))
    text = said_of(f"{way.host}/a")
    assert text == f"the registry {way.host} fails with 502, 4 times; try again later"


def test_a_registry_is_given_the_time_that_it_asks_for(door):
    asked = Fault(status=429, headers={"Retry-After": "1"})
    left = [asked]
    way = door(lambda _: left.pop() if left else None)
    before = time.monotonic()
    with Registry(registries.fresh(way.host), patience=QUICK, find=nobody) as images:
        assert images.digest() is None
    assert len(way.requests) == 2
    assert time.monotonic() - before >= 1  # the registry's wish, and not how quick we are


def test_what_is_no_registry(door):
    way = door(lambda _: Fault(status=200, body=b"<html>", headers={"Content-Type": "text/html"}))
    assert said_of(f"{way.host}/a") == (
        f"{way.host}/a cannot be built on: its manifest is not JSON; push that image again"
    )


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        (b"[]", "its manifest is no JSON object"),
        (b'{"schemaVersion": 1}', "its manifest is of Docker's old schema 1"),
        (b'{"schemaVersion": 2}', "its manifest names no config and layers"),
        (
            b'{"schemaVersion": 2, "config": {}, "layers": []}',
            "its manifest names a blob without a sha256 digest and a size",
        ),
        (
            b'{"schemaVersion": 2, "config": {"digest": "md5:1", "size": 1}, "layers": []}',
            "its manifest names a blob without a sha256 digest and a size",
        ),
    ],
)
def test_a_manifest_that_cannot_be_built_on(door, manifest, told):
    way = door(lambda _: Fault(status=200, body=manifest))
    assert said_of(f"{way.host}/a") == (
        f"{way.host}/a cannot be built on: {told}; push that image again"
    )


def test_a_manifest_that_is_not_what_its_digest_says(door):
    way = door(lambda _: Fault(status=200, body=b"{}"))
    digest = blobs.digest_of(b"other")
    assert said_of(f"{way.host}/a@{digest}") == (
        f"{way.host} gave other bytes than those of {digest}; push that image again"
    )


@pytest.fixture
def secure(registry_program, tmp_path):
    """A registry with TLS, and the certificate of the authority that signed its own."""
    import trustme

    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "root.pem")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    tls = f", tls: {{certificate: {tmp_path}/cert.pem, key: {tmp_path}/key.pem}}"
    with registries.serving(tmp_path / "secure", tls=tls) as host:
        yield host, tmp_path / "root.pem"


def test_tls_on_this_machine_is_found_out(secure, monkeypatch):
    host, root = secure
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(root))
    assert registries.Recipe().push(registries.fresh(host))


def test_a_certificate_that_is_not_trusted(secure, monkeypatch):
    host, _ = secure
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    text = said_of(f"{host}/a")
    assert text.startswith(f"the certificate of {host} is not trusted (")
    assert text.endswith(
        "); set REQUESTS_CA_BUNDLE to a file with the certificate of the authority that signed it"
    )


def test_a_registry_without_tls_elsewhere_is_pointed_out(registry):
    # A name of this machine that is none of the loopback's.
    port = registry.rpartition(":")[2]
    problem = None
    try:
        requests.get(f"https://127.0.0.1:{port}/v2/", timeout=5)
    except requests.RequestException as found:
        problem = found
    text = str(refusals.unreachable(problem, Reference.parse("registry.example.com:5000/a")))
    assert text == (
        "registry.example.com:5000 speaks http and no https; a registry without TLS is used on "
        "localhost only, so reach it there, as by 'ssh -L 5000:registry.example.com:5000 …' and "
        "localhost:5000"
    )
