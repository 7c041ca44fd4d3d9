"""Blobs and manifests of a registry, and layers that are appended to an image in it."""

from __future__ import annotations

import gzip
import os

import images
import pytest
from fake_registry import FakeRegistry, Fault
from images import QUICK
from images import opened as open_registry

from distlaunch.errors import ImageError
from distlaunch.image.layers import Layer
from distlaunch.image.reference import Reference
from distlaunch.image.registry import manifests
from distlaunch.image.registry.client import Registry, append_layers
from distlaunch.image.registry.manifests import ImageSettings
from distlaunch.image.registry.transport import Blob, RetryPolicy, digest_of

SMALL, LARGE = b"small\n", os.urandom(3_000_000)


def once(fault, method, part=""):
    """Return a rule that gives a fault to the first request of a kind."""
    faults = [fault]
    return lambda request: (
        faults.pop() if faults and request.method == method and part in request.path else None
    )


def content(registry, data):
    return b"".join(registry.blob(digest_of(data), len(data)).chunks())


# Blobs


@pytest.mark.parametrize("data", [b"", SMALL, LARGE], ids=["empty", "small", "large"])
def test_an_uploaded_blob_can_be_read_and_is_not_sent_again(any_registry, tmp_path, data):
    (tmp_path / "blob").write_bytes(data)
    progress, again = [], []
    with open_registry(any_registry) as registry:
        blob = Blob.of_file(tmp_path / "blob", digest_of(data), len(data))
        registry.upload(blob, progress.append)
        assert content(registry, data) == data
        registry.upload(blob, again.append)
    assert progress[-1:] == ([len(data)] if data else [])
    assert again == []


@pytest.mark.parametrize(
    ("method", "part"), [("HEAD", "blobs"), ("POST", "uploads"), ("PUT", "digest=")]
)
@pytest.mark.parametrize(
    "fault",
    [Fault(503), Fault(429), *(Fault(drop=part) for part in ("request", "body", "response"))],
    ids=["503", "429", "no response", "broken upload", "lost response"],
)
def test_an_upload_is_retried(door, method, part, fault):
    flaky, progress = door(once(fault, method, part)), []
    with open_registry(flaky.host) as registry:
        registry.digest()
        registry.upload(Blob.of_bytes(LARGE), progress.append)
        assert content(registry, LARGE) == LARGE
    assert progress[-1] == len(LARGE)
    assert flaky.count("PUT") == 1 + (method == "PUT" and fault.drop != "response")


def test_retries_end_with_the_last_error(door):
    broken = door(lambda request: Fault(drop="body") if request.method == "PUT" else None)
    with open_registry(broken.host) as registry, pytest.raises(ImageError, match="broke"):
        registry.upload(Blob.of_bytes(LARGE))
    assert broken.count("PUT") == 1 + QUICK.retries


def test_retry_after_is_respected(door, monkeypatch):
    busy = door(once(Fault(429, headers={"Retry-After": "3"}), "HEAD"))
    waits = []
    monkeypatch.setattr(Registry, "_wait", lambda _, wait: waits.append(wait))
    with open_registry(busy.host) as registry:
        assert registry.digest() is None
    assert waits == [3]
    assert len(busy.requests) == 2


def test_a_registry_that_never_responded_is_not_retried(door):
    hanging = door(lambda _: Fault(hang=0.5))
    reference = Reference.parse(f"{hanging.host}/a")
    with (
        Registry(reference, RetryPolicy(1, 0.1, retries=1, delay=0.01)) as registry,
        pytest.raises(ImageError, match=f"the registry {hanging.host} does not respond; check it"),
    ):
        registry.digest()
    assert len(hanging.requests) == 1


@pytest.mark.parametrize("drop", ["request", "response"])
def test_the_first_request_is_retried_if_the_connection_breaks(door, drop):
    flaky = door(once(Fault(drop=drop), "HEAD"))
    with open_registry(flaky.host) as registry:
        assert registry.digest() is None
    assert flaky.count("HEAD") == 2


def test_a_connection_that_always_breaks_is_reported_for_itself(door, tmp_path):
    broken = door(lambda _: Fault(drop="request"))
    with open_registry(broken.host) as registry:
        try:
            (tmp_path / "docker.sock").stat()
        except FileNotFoundError:  # Docker is not there, so pip is tried
            with pytest.raises(ImageError) as problem:
                registry.digest()
    assert f"the connection to {broken.host} broke (" in str(problem.value)
    assert "no such file" not in str(problem.value)
    assert len(broken.requests) == 1 + QUICK.retries


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
            lambda: Registry(registry.repository.with_digest(expected), QUICK).image(),
        ):
            with pytest.raises(ImageError) as caught:
                read()
            assert str(caught.value).startswith(message)


def test_no_proxy_is_used_for_loopback(registry, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert images.push(images.fresh(registry))


# Manifests


def test_a_missing_image(any_registry):
    reference = images.fresh(any_registry)
    with Registry(reference, QUICK) as registry:
        assert registry.digest() is None
        assert registry.digest("other") is None
        with pytest.raises(ImageError) as caught:
            registry.image()
    assert str(caught.value).startswith(f"there is no image {reference} in {reference.host} (")


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (b"<html>", "its manifest is not a JSON object"),
        (b"[]", "its manifest is not a JSON object"),
        (b'{"schemaVersion": 1}', "its manifest has no config and layers"),
    ],
)
def test_an_unusable_manifest(manifest, reason):
    with FakeRegistry(lambda _: Fault(200, manifest)) as wrong:
        reference = Reference.parse(f"{wrong.host}/a")
        with Registry(reference) as registry, pytest.raises(ImageError) as caught:
            registry.image()
        assert str(caught.value) == (
            f"{reference} is not a usable image: {reason}; push that image again"
        )


# Appended layers

SETTINGS = ImageSettings(
    entrypoint=("python", "-m", "trainer.task"),
    env={"A": "1", "PATH": "/new"},
    workdir="/app",
)
BASE_CONFIG = {
    "Env": ["PATH=/old", "B=a=b"],
    "Cmd": ["bash"],
    "Labels": {"theirs": "y"},
    "User": "ann",
    "Image": "sha256:removed",
}


def append(base, target, layers, settings=SETTINGS, policy=QUICK, **options):
    return append_layers(base, target, layers, settings, policy=policy, **options)


def files_of(reference):
    """Return the files of all layers."""
    layers = [images.files(reference, index) for index in range(len(images.layers(reference)))]
    return {path: data for files in layers for path, data in files.items()}


@pytest.fixture
def code(tmp_path):
    data = images.tar_of({"app": None, "app/task.py": b"print(1)\n"})
    (tmp_path / "layer").write_bytes(data)
    diff_id = digest_of(gzip.decompress(data))
    return Layer(tmp_path / "layer", digest_of(data), diff_id, len(data), "COPY . /app")


@pytest.mark.parametrize(
    ("oci", "has_media_type"),
    [(True, True), (True, False), (False, True)],
    ids=["oci", "oci without a media type", "docker"],
)
def test_a_layer_and_settings_are_added_to_the_base(any_registry, code, oci, has_media_type):
    base = images.fresh(any_registry, "base")
    target = images.fresh(any_registry, tag="abc")
    base_digest = images.push(base, config=BASE_CONFIG, oci=oci, has_media_type=has_media_type)
    digest = append(base, target, [code])

    image = images.image(target)
    assert image.digest == digest
    assert images.image(base).digest == base_digest
    assert files_of(target) == {"etc/base": b"base\n", "app/task.py": b"print(1)\n"}
    assert image.config["config"] == {
        "Env": ["PATH=/new", "B=a=b", "A=1"],
        "Labels": {"theirs": "y"},
        "User": "ann",
        "Entrypoint": ["python", "-m", "trainer.task"],
        "WorkingDir": "/app",
    }
    assert image.config["rootfs"]["diff_ids"][-1] == code.diff_id
    assert [step["created_by"] for step in image.config["history"]] == ["ADD base", "COPY . /app"]
    assert image.config["created"] == "2026-01-02T03:04:05Z"
    assert "container" not in image.config
    types = manifests.OCI if oci else manifests.DOCKER
    assert image.manifest["mediaType"] == types.manifest
    assert image.manifest["layers"][-1]["mediaType"] == types.layer


def test_a_base_of_another_registry_is_copied_once(registry, code):
    data = os.urandom(3_000_000)
    base = images.fresh(registry, "base")
    images.push(base, layers=[images.tar_of({"big": data}), images.tar_of({"a": b"1"})])
    with FakeRegistry() as other:
        target = images.fresh(other.host)
        lines, again = [], []
        append(base, target, [code], progress=lines.append)
        assert files_of(target)["big"] == data
        assert lines[-1] == f"pushing {target}: 3.0 of 3.0 MB"
        append(base, target.with_tag("b"), [code], progress=again.append)
        append(target, target.with_tag("c"), [code], progress=again.append)
        assert again == []


@pytest.mark.parametrize("oci", [False, True])
def test_the_image_for_linux_amd64_is_chosen_from_an_index(registry, code, oci):
    base, target = images.fresh(registry, "base"), images.fresh(registry)
    digests = {
        name: images.push(base.with_tag(name), architecture=name, oci=oci)
        for name in ("arm64", "amd64")
    }
    images.push_index(base, digests | {"unknown": digests["arm64"]}, oci=oci)
    append(base, target, [code])
    assert images.image(target).config["architecture"] == "amd64"
    with Registry(base, QUICK) as opened:
        assert opened.digest() == opened.digest(digests["amd64"]) == digests["amd64"]
    images.push_index(base.with_tag("index"), {"arm64": digests["arm64"]}, oci=oci)
    for other in (base.with_tag("arm64"), base.with_tag("index")):
        with pytest.raises(ImageError) as caught:
            append(other, target, [code])
        assert str(caught.value) == (
            f"{other} is for linux/arm64, and Google's machines are linux/amd64; rebuild it "
            "with 'docker build --platform linux/amd64', or choose another image"
        )


def test_the_first_error_cancels_other_uploads(fake, door, code):
    base = images.fresh(fake.host, "base")
    large = os.urandom(1_500_000)
    images.push(base, layers=[large])

    def rule(request):
        if request.method == "HEAD" and digest_of(large) in request.path:
            return Fault(503)  # retried after an hour
        return Fault(403) if code.digest in request.path else None

    target = images.fresh(door(rule, repositories={}).host)
    with pytest.raises(ImageError, match=f"^push of {target.name} denied; "):
        append(base, target, [code], policy=RetryPolicy(5, 5, delay=3600.0))
