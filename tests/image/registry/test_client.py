"""Blobs and manifests: uploads, retries and verification."""

from __future__ import annotations

import os

import pytest
import registries
from fake_registry import FakeRegistry, Fault
from registries import QUICK

from distlaunch.errors import ImageError
from distlaunch.image.reference import Reference
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.transport import Blob, RetryPolicy, digest_of

SMALL, LARGE = b"small\n", os.urandom(3_000_000)


def open_registry(host):
    return Registry(registries.fresh(host), policy=QUICK, credentials=lambda _: None)


def once(fault, method, part=""):
    """Return a rule that gives a fault to the first request of a kind."""
    faults = [fault]
    return lambda request: (
        faults.pop() if faults and request.method == method and part in request.path else None
    )


def content(registry, data):
    return b"".join(registry.blob(digest_of(data), len(data)).chunks())


@pytest.mark.parametrize("data", [b"", SMALL, LARGE], ids=["empty", "small", "large"])
def test_an_uploaded_blob_can_be_read(any_registry, tmp_path, data):
    (tmp_path / "blob").write_bytes(data)
    progress = []
    with open_registry(any_registry) as registry:
        blob = Blob.of_file(tmp_path / "blob", digest_of(data), len(data))
        registry.upload(blob, progress.append)
        assert content(registry, data) == data
        assert registry.bytes_sent == len(data)
        registry.upload(blob)
        assert registry.bytes_sent == len(data)  # it exists, so nothing is sent
    assert progress[-1:] == ([len(data)] if data else [])


@pytest.mark.parametrize(
    ("method", "part"), [("HEAD", "blobs"), ("POST", "uploads"), ("PUT", "digest=")]
)
@pytest.mark.parametrize(
    "fault",
    [Fault(503), Fault(429), Fault(drop="request"), Fault(drop="response")],
    ids=["503", "429", "no response", "lost response"],
)
def test_an_upload_is_retried(door, method, part, fault):
    flaky = door(once(fault, method, part))
    with open_registry(flaky.host) as registry:
        registry.digest()
        registry.upload(Blob.of_bytes(LARGE))
        assert content(registry, LARGE) == LARGE


def test_an_upload_starts_over_after_the_connection_breaks(door):
    flaky = door(once(Fault(drop="body"), "PUT"))
    progress = []
    with open_registry(flaky.host) as registry:
        registry.upload(Blob.of_bytes(LARGE), progress.append)
        assert content(registry, LARGE) == LARGE
    assert progress[-1] == len(LARGE)
    assert flaky.count("PUT") == 2


def test_retries_end_with_the_last_error(door):
    broken = door(lambda r: Fault(drop="body") if r.method == "PUT" else None)
    with open_registry(broken.host) as registry, pytest.raises(ImageError, match="broke"):
        registry.upload(Blob.of_bytes(LARGE))
    assert broken.count("PUT") == 1 + QUICK.retries


def test_retry_after_is_respected(door, monkeypatch):
    busy = door(once(Fault(429, headers={"Retry-After": "3"}), "HEAD"))
    waits = []
    monkeypatch.setattr(
        "distlaunch.image.registry.transport.Transport._wait", lambda _, wait: waits.append(wait)
    )
    with open_registry(busy.host) as registry:
        assert registry.digest() is None
    assert waits == [3]
    assert len(busy.requests) == 2


def test_a_registry_that_never_responded_is_not_retried(door):
    hanging = door(lambda _: Fault(hang=0.5))
    policy = RetryPolicy(connect=1, read=0.1, retries=1, delay=0.01)
    reference = Reference.parse(f"{hanging.host}/a")
    with (
        Registry(reference, policy=policy, credentials=lambda _: None) as registry,
        pytest.raises(ImageError, match=f"the registry {hanging.host} does not respond; check it"),
    ):
        registry.digest()
    assert len(hanging.requests) == 1


def test_a_blob_is_copied_between_registries_over_a_broken_download(fake, door):
    source = door(once(Fault(cut=1_500_000), "GET", "blobs/sha256"))
    with open_registry(source.host) as base, open_registry(fake.host) as registry:
        base.upload(Blob.of_bytes(LARGE))
        registry.digest()
        registry.upload(base.blob(digest_of(LARGE), len(LARGE)))
        assert content(registry, LARGE) == LARGE


def test_content_with_another_digest_is_refused(door):
    wrong = door(lambda _: Fault(200, b"{}"))
    expected = digest_of(b"other")
    message = f"content of {wrong.host} has the digest {digest_of(b'{}')}, expected {expected}; "
    with open_registry(wrong.host) as registry:
        for read in (
            lambda: list(registry.blob(expected, 2).chunks()),
            lambda: registry.image(expected),
        ):
            with pytest.raises(ImageError) as caught:
                read()
            assert str(caught.value).startswith(message)


def test_a_missing_image(any_registry):
    reference = registries.fresh(any_registry)
    with Registry(reference, policy=QUICK, credentials=lambda _: None) as registry:
        assert registry.digest() is None
        assert registry.digest("other") is None
        with pytest.raises(ImageError) as caught:
            registry.image()
    assert str(caught.value).startswith(f"there is no image {reference} in {reference.host} (")


def test_no_proxy_is_used_for_loopback(registry, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert registries.Recipe().push(registries.fresh(registry))


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (b"<html>", "its manifest is not JSON"),
        (b"[]", "its manifest is not a JSON object"),
        (
            b'{"schemaVersion": 2, "config": {"digest": "md5:1", "size": 1}, "layers": []}',
            "its manifest has no config and layers by sha256 digest",
        ),
    ],
)
def test_an_unusable_manifest(manifest, reason):
    with FakeRegistry(lambda _: Fault(200, manifest)) as wrong:
        reference = Reference.parse(f"{wrong.host}/a")
        registry = Registry(reference, credentials=lambda _: None)
        with registry, pytest.raises(ImageError) as caught:
            registry.image()
        assert str(caught.value) == (
            f"{reference} is not a usable image: {reason}; push that image again"
        )
