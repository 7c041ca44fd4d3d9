"""Layers appended to an image in a registry."""

from __future__ import annotations

import gzip
import hashlib
import os

import projects
import pytest
import registries
from fake_registry import FakeRegistry, Fault
from registries import QUICK, Recipe, tar_of

from distlaunch.errors import ImageError
from distlaunch.image.layers import Layer
from distlaunch.image.reference import Reference
from distlaunch.image.registry import manifests
from distlaunch.image.registry.append import append_layers
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.manifests import ImageSettings
from distlaunch.image.registry.transport import RetryPolicy, digest_of

SETTINGS = ImageSettings(
    entrypoint=("python", "-m", "trainer.task"),
    env={"A": "1", "PATH": "/new"},
    workdir="/app",
    labels={"ours": "x"},
)
BASE_CONFIG = {
    "Env": ["PATH=/old", "B=a=b"],
    "Cmd": ["bash"],
    "Labels": {"theirs": "y"},
    "User": "ann",
    "Image": "sha256:removed",
}


def anonymous(_host):
    return None


def layer(folder, files, name="layer"):
    data = tar_of(files)
    file = folder / name
    file.write_bytes(data)
    diff_id = f"sha256:{hashlib.sha256(gzip.decompress(data)).hexdigest()}"
    return Layer(file, digest_of(data), diff_id, len(data), "COPY . /app")


def append(base, target, layers, settings=SETTINGS, **options):
    options = {"policy": QUICK, "credentials": anonymous, **options}
    return append_layers(base, target, layers, settings, **options)


def files_of(reference):
    """Return the files of all layers."""
    layers = [projects.files(reference, index) for index in range(len(projects.layers(reference)))]
    return {path: content for each in layers for path, content in each.items()}


@pytest.fixture
def code(tmp_path):
    return layer(tmp_path, {"app": None, "app/task.py": b"print(1)\n"})


@pytest.mark.parametrize(
    ("oci", "has_media_type"),
    [(True, True), (True, False), (False, True)],
    ids=["oci", "oci without a media type", "docker"],
)
def test_a_layer_and_settings_are_added_to_the_base(any_registry, code, oci, has_media_type):
    base = registries.fresh(any_registry, "base")
    target = registries.fresh(any_registry, tag="abc")
    base_digest = Recipe(config=BASE_CONFIG, oci=oci, has_media_type=has_media_type).push(base)
    appended = append(base, target, [code])

    image = projects.image(target)
    assert image.digest == appended.digest
    assert projects.image(base).digest == base_digest
    assert files_of(target) == {"etc/base": b"base\n", "app/task.py": b"print(1)\n"}
    assert image.config["config"] == {
        "Env": ["PATH=/new", "B=a=b", "A=1"],
        "Labels": {"theirs": "y", "ours": "x"},
        "User": "ann",
        "Entrypoint": ["python", "-m", "trainer.task"],
        "WorkingDir": "/app",
    }
    assert image.config["rootfs"]["diff_ids"][-1] == code.diff_id
    assert [each["created_by"] for each in image.config["history"]] == ["ADD base", "COPY . /app"]
    assert image.config["created"] == "2026-01-02T03:04:05Z"
    assert "container" not in image.config
    types = manifests.OCI if oci else manifests.DOCKER
    assert image.manifest["mediaType"] == types.manifest
    assert image.manifest["layers"][-1]["mediaType"] == types.layer


def test_equal_input_gives_an_equal_digest(registry, code):
    base = registries.fresh(registry, "base")
    Recipe().push(base)
    digests = {append(base, registries.fresh(registry), [code]).digest for _ in range(3)}
    assert len(digests) == 1
    other = ImageSettings(entrypoint=("python", "-m", "other"))
    assert append(base, registries.fresh(registry), [code], other).digest not in digests


def test_the_base_is_mounted_in_its_registry(any_registry, code):
    base = registries.fresh(any_registry, "base")
    Recipe(layers=[tar_of({f"{n}": os.urandom(50_000)}) for n in range(12)]).push(base)
    target = registries.fresh(any_registry)
    assert append(base, target, [code]).bytes_sent < 10_000
    assert len(files_of(target)) == 13


@pytest.mark.parametrize("status", [202, 403])
def test_a_base_that_cannot_be_mounted_is_copied(fake, door, code, status):
    refusing = door(lambda r: Fault(status) if "mount=" in r.path else None)
    base = registries.fresh(fake.host, "base")
    Recipe().push(base)
    target = registries.fresh(refusing.host)
    append(Reference.parse(f"{refusing.host}/{base.path}"), target, [code])
    assert "etc/base" in files_of(target)


def test_a_base_of_another_registry_is_copied_once(registry, code):
    data = os.urandom(3_000_000)
    base = registries.fresh(registry, "base")
    Recipe(layers=[tar_of({"big": data}), tar_of({"a": b"1"})]).push(base)
    with FakeRegistry() as other:
        target = registries.fresh(other.host)
        lines = []
        assert append(base, target, [code], progress=lines.append).bytes_sent > 3_000_000
        assert files_of(target)["big"] == data
        assert lines[-1] == f"pushing {target}: 3.0 of 3.0 MB"
        assert append(base, target.with_tag("b"), [code]).bytes_sent < 5_000
        assert append(target, target.with_tag("c"), [code]).bytes_sent < 3_000


@pytest.mark.parametrize("oci", [False, True])
def test_the_image_for_linux_amd64_is_chosen_from_an_index(registry, code, oci):
    base = registries.fresh(registry, "base")
    digests = {
        f"linux/{name}": Recipe(architecture=name, oci=oci).push(base.with_tag(name))
        for name in ("arm64", "amd64")
    }
    digests["unknown/unknown"] = digests["linux/arm64"]
    registries.push_index(base, digests, oci=oci)
    target = registries.fresh(registry)
    append(base, target, [code])
    assert projects.image(target).config["architecture"] == "amd64"
    with Registry(base, policy=QUICK, credentials=anonymous) as images:
        assert images.digest() == digests["linux/amd64"]
        assert images.digest(digests["linux/amd64"]) == digests["linux/amd64"]


def test_a_base_for_another_platform_is_refused(registry, code):
    base = registries.fresh(registry, "base")
    digest = Recipe(architecture="arm64").push(base)
    index = base.with_tag("index")
    registries.push_index(index, {"linux/arm64": digest}, oci=True)
    for reference in (base, index):
        with pytest.raises(ImageError) as caught:
            append(reference, registries.fresh(registry), [code])
        assert str(caught.value) == (
            f"{reference} is for linux/arm64, and Google's machines are linux/amd64; rebuild it "
            "with 'docker build --platform linux/amd64', or choose another image"
        )


def test_the_first_error_cancels_other_uploads(fake, door, code):
    base = registries.fresh(fake.host, "base")
    large = os.urandom(1_500_000)
    Recipe(layers=[large]).push(base)

    def rule(request):
        if request.method == "HEAD" and digest_of(large) in request.path:
            return Fault(503)  # retried after an hour
        return Fault(403) if code.digest in request.path else None

    failing = door(rule, repositories={})
    target = registries.fresh(failing.host)
    policy = RetryPolicy(connect=5, read=5, delay=3600.0)
    with pytest.raises(ImageError, match=f"^push of {target.name} denied; "):
        append(base, target, [code], policy=policy)
