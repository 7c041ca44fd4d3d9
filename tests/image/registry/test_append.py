"""An image that is another one and some layers, made in a real registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile

import pytest
import registries
from registries import QUICK, Fault, Recipe, tar_of

from distlaunch.errors import ImageError
from distlaunch.image.layers import Layer
from distlaunch.image.reference import Reference
from distlaunch.image.registry import blobs, manifests
from distlaunch.image.registry.append import append
from distlaunch.image.registry.client import Registry
from distlaunch.image.registry.config import Settings, extended
from distlaunch.image.registry.transport import Patience

SETTINGS = Settings(
    entrypoint=("python", "-m", "trainer.task"),
    env={"A": "1", "PATH": "/new"},
    workdir="/app",
    labels={"ours": "x"},
)
OF_BASE = {
    "Env": ["PATH=/old", "B=a=b"],
    "Cmd": ["bash"],
    "Labels": {"theirs": "y"},
    "User": "ann",
    "Image": "sha256:gone",
}


def nobody(_host):
    return None


def layer(folder, files, name="layer"):
    data = tar_of(files)
    file = folder / name
    file.write_bytes(data)
    plain = hashlib.sha256(gzip.decompress(data)).hexdigest()
    return Layer(file, blobs.digest_of(data), f"sha256:{plain}", len(data), "COPY . /app")


def made(base, target, layers, settings=SETTINGS, **kwargs):
    return append(base, target, layers, settings, patience=QUICK, find=nobody, **kwargs)


def pulled(reference, identifier=None):
    with Registry(reference, patience=QUICK, find=nobody) as registry:
        return registry.image(identifier)


def files_of(reference, image):
    """Return the files of all layers, as an engine lays them over each other."""
    found = {}
    with Registry(reference, patience=QUICK, find=nobody) as registry:
        for each in image.manifest["layers"]:
            data = b"".join(registry.blob(each["digest"], each["size"]).read_from(0))
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                found |= {e.name: tar.extractfile(e).read() for e in tar if e.isreg()}
    return found


@pytest.fixture
def code(tmp_path):
    return layer(tmp_path, {"app": None, "app/task.py": b"print(1)\n"})


@pytest.mark.parametrize(
    ("oci", "says_media_type"),
    [(True, True), (True, False), (False, True)],
    ids=["oci", "oci without a media type", "docker"],
)
def test_the_base_with_a_layer_and_other_settings(registry, code, oci, says_media_type):
    base = registries.fresh(registry, "base")
    target = registries.fresh(registry, tag="abc")
    recipe = Recipe(config=OF_BASE, oci=oci, says_media_type=says_media_type)
    of_base = recipe.push(base)
    done = made(base, target, [code])

    image = pulled(target)
    assert image.digest == done.digest == pulled(target, done.digest).digest
    assert pulled(base).digest == of_base
    assert files_of(target, image) == {"etc/base": b"base\n", "app/task.py": b"print(1)\n"}
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
    kinds = (
        (manifests.OCI_MANIFEST, manifests.OCI_LAYER)
        if oci
        else (
            manifests.DOCKER_MANIFEST,
            manifests.DOCKER_LAYER,
        )
    )
    assert (image.manifest["mediaType"], image.manifest["layers"][-1]["mediaType"]) == kinds


def test_settings_that_say_nothing_change_nothing(registry, code):
    base, target = registries.fresh(registry, "base"), registries.fresh(registry)
    Recipe(config={"Cmd": ["bash"], "Entrypoint": ["tini"]}).push(base)
    made(base, target, [code], Settings())
    assert pulled(target).config["config"] == {"Cmd": ["bash"], "Entrypoint": ["tini"]}


def test_a_base_without_a_history_gets_as_much_as_it_has_layers(registry, code):
    base, target = registries.fresh(registry, "base"), registries.fresh(registry)
    layers = [tar_of({"a": b"1"}), tar_of({"b": b"2"})]
    Recipe(history=False, layers=layers).push(base)
    made(base, target, [code])
    assert len(pulled(target).config["history"]) == 3


def test_the_same_input_gives_the_same_digest(registry, code):
    base = registries.fresh(registry, "base")
    Recipe().push(base)
    digests = {made(base, registries.fresh(registry), [code]).digest for _ in range(3)}
    assert len(digests) == 1
    other = Settings(entrypoint=("python", "-m", "other"))
    assert made(base, registries.fresh(registry), [code], other).digest not in digests


def test_what_the_repository_has_is_not_sent_again(registry, door, code, tmp_path):
    base = registries.fresh(registry, "base")
    Recipe(layers=[os.urandom(300_000)]).push(base)
    target = registries.fresh(registry)
    made(base, target, [code])
    environment = target.with_tag("latest")
    change = layer(tmp_path, {"app/task.py": b"print(2)\n"}, "other")
    way = door()
    again = Reference.parse(f"{way.host}/{target.path}:b")
    same = Reference.parse(f"{way.host}/{environment.path}")
    done = made(same, again, [code, change])
    assert done.sent < change.size + 3_000
    assert way.count("POST", "mount=") == 0
    sent = sum(each.length for each in way.requests)
    assert sent == done.sent
    assert [each.method for each in way.requests].count("HEAD") == 2  # one a layer


def test_the_base_is_mounted_from_its_repository(registry, door, code):
    base = registries.fresh(registry, "base")
    Recipe(layers=[tar_of({f"{n}": os.urandom(50_000)}) for n in range(12)]).push(base)
    way = door()
    of_base = Reference.parse(f"{way.host}/{base.path}")
    target = registries.fresh(way.host)
    done = made(of_base, target, [code])
    assert way.count("POST", "mount=") == 12
    assert way.count("PATCH") == 0
    assert done.sent < 10_000
    assert len(files_of(target, pulled(target))) == 13


@pytest.mark.parametrize("status", [202, 401, 403, 404, 405])
def test_a_base_that_is_not_mounted_is_copied(registry, door, code, status):
    headers = {"Location": "/v2/nowhere", "Content-Type": "application/json"}

    def refuse(request):
        return Fault(status=status, headers=headers) if "mount=" in request.path else None

    way = door(refuse)
    base = registries.fresh(registry, "base")
    Recipe().push(base)
    target = registries.fresh(way.host)
    made(Reference.parse(f"{way.host}/{base.path}"), target, [code])
    assert "etc/base" in files_of(target, pulled(target))


def test_a_base_of_another_registry_is_copied_once(registry, door, code):
    data = os.urandom(3_000_000)
    base = registries.fresh(registry, "base")
    Recipe(layers=[tar_of({"big": data}), tar_of({"a": b"1"})]).push(base)
    way = door()
    target = registries.fresh(way.host)
    lines = []
    first = made(base, target, [code], progress=lines.append)
    assert first.sent > 3_000_000
    assert files_of(target, pulled(target))["big"] == data
    assert lines[-1].startswith(f"pushing {target}: 3.0 of 3.0 MB")
    assert made(base, target.with_tag("b"), [code]).sent < 5_000


def test_an_index_gives_the_image_for_the_machines_of_google(registry, code):
    for oci in (False, True):
        base = registries.fresh(registry, "base")
        of = {
            f"linux/{name}": Recipe(architecture=name, oci=oci).push(base.with_tag(name))
            for name in ("arm64", "amd64")
        }
        of["unknown/unknown"] = of["linux/arm64"]
        registries.push_index(base, of, oci=oci)
        target = registries.fresh(registry)
        made(base, target, [code])
        assert pulled(target).config["architecture"] == "amd64"
        with Registry(base, patience=QUICK, find=nobody) as images:
            assert images.digest() == of["linux/amd64"]
            assert images.digest(of["linux/amd64"]) == of["linux/amd64"]


def test_a_base_for_other_machines_is_refused(registry, code):
    base = registries.fresh(registry, "base")
    digest = Recipe(architecture="arm64").push(base)
    remedy = (
        "is for linux/arm64, and Google's machines are linux/amd64; build it again with "
        "'docker build --platform linux/amd64', or choose another image"
    )
    with pytest.raises(ImageError) as caught:
        made(base, registries.fresh(registry), [code])
    assert str(caught.value) == f"{base} {remedy}"
    registries.push_index(base.with_tag("index"), {"linux/arm64": digest}, oci=True)
    with pytest.raises(ImageError) as caught:
        made(base.with_tag("index"), registries.fresh(registry), [code])
    assert str(caught.value) == f"{base.with_tag('index')} {remedy}"
    with pytest.raises(ImageError), Registry(base, patience=QUICK, find=nobody) as images:
        images.digest("index")


@pytest.mark.parametrize("lost", [Fault(lose=True), Fault(status=502)], ids=["lost", "502"])
def test_an_answer_lost_to_the_manifest_makes_no_other_image(registry, door, code, lost):
    base = registries.fresh(registry, "base")
    Recipe().push(base)
    left = [lost]

    def rule(request):
        return (
            left.pop()
            if left and request.method == "PUT" and "/manifests/" in request.path
            else None
        )

    way = door(rule)
    target = registries.fresh(way.host)
    done = made(base, target, [code])
    assert not left
    assert pulled(target).digest == done.digest


def test_the_first_failure_ends_the_others(registry, door, code):
    """A blob that has long to go does not keep an error from being told."""
    base = registries.fresh(registry, "base")
    Recipe(layers=[tar_of({"big": os.urandom(1_500_000)})]).push(base)

    def rule(request):
        if request.method == "PATCH":
            return Fault(status=503)  # to be tried again in an hour
        return Fault(status=403) if code.digest in request.path else None

    way = door(rule)
    hour = Patience(connect=5, read=5, delays=(3600.0,))
    target = registries.fresh(way.host)
    with pytest.raises(ImageError, match=f"^(push|pull) of {target.name} denied; "):
        append(base, target, [code], SETTINGS, patience=hour, find=nobody)


def test_it_needs_little_of_python(registry, code):
    """A push of one layer imports nothing of Google's, of Docker's or for templates."""
    base, target = registries.fresh(registry, "base"), registries.fresh(registry)
    Recipe().push(base)
    program = f"""
import sys
from pathlib import Path
from distlaunch.image.registry.append import append
from distlaunch.image.registry.config import Settings, extended
from distlaunch.image.layers import Layer
from distlaunch.image.reference import Reference
layer = Layer(Path({str(code.file)!r}), {code.digest!r}, {code.diff_id!r}, {code.size}, "COPY")
parse = Reference.parse
append(parse({str(base)!r}), parse({str(target)!r}), [layer], Settings())
heavy = {{"google.auth", "docker", "jinja2", "pydantic", "yaml", "cryptography", "click"}}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_config_alone():
    """What an image's config becomes is plain data, without any registry."""
    config = {"rootfs": {"diff_ids": ["sha256:a"]}, "os": "linux"}
    new = extended(config, [], Settings(env={"A": "1"}))
    assert new["config"] == {"Env": ["A=1"]}
    assert new["created"] == "1970-01-01T00:00:00Z"
    assert json.loads(json.dumps(new)) == new
