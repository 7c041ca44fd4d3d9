"""The Python of a base image, found in its layers."""

from __future__ import annotations

import gzip

import images
import pytest
from images import PYTHON_FILES, QUICK, SITE_PACKAGES, tar_of

from distlaunch.errors import ImageError
from distlaunch.image.base_python import find_python
from distlaunch.image.registry.client import Registry

LIBC = {"lib/x86_64-linux-gnu/libc.so.6": b"... stable release version 2.31."}


@pytest.fixture
def python_of(registry):
    """Push an image of layers, and return its Python."""

    def find(*layers, path="/usr/local/bin:/usr/bin"):
        reference = images.fresh(registry, "base")
        packed = [layer if isinstance(layer, bytes) else tar_of(layer) for layer in layers]
        config = {"Env": [f"PATH={path}", "PYTHON_VERSION=3.11.7"]}
        images.push(reference, layers=packed, config=config)
        with Registry(reference, policy=QUICK) as opened:
            return find_python(opened, opened.image(), print)

    return find


@pytest.mark.parametrize(
    ("files", "path", "expected"),
    [
        (
            PYTHON_FILES,
            "/usr/bin:/usr/local/bin",
            ("3.11.7", "usr/local", SITE_PACKAGES, 36),
        ),
        (
            {"usr/bin/python3.12": b"", "usr/bin/python3.9": b"", **LIBC},
            "/usr/bin",
            ("3.12.0", "usr", "usr/local/lib/python3.12/dist-packages", 31),
        ),
        (
            {"opt/conda/bin/python3.10": b"", **PYTHON_FILES},
            "/opt/conda/bin/:/usr/local/bin",
            ("3.10.0", "opt/conda", "opt/conda/lib/python3.10/site-packages", 36),
        ),
    ],
    ids=["official", "debian", "conda"],
)
def test_the_first_python_on_path(python_of, files, path, expected):
    python = python_of(files, path=path)
    assert (python.version, python.prefix, python.library, python.glibc) == expected


def test_files_that_a_later_layer_removes_are_gone(python_of):
    removal = {f"{SITE_PACKAGES}/.wh.pip-24.0.dist-info": b"", "usr/bin/python3.12": b""}
    python = python_of(PYTHON_FILES, {**removal, "usr/local/bin/.wh..wh..opq": b""})
    assert python.program == "/usr/bin/python3.12"
    assert python_of(PYTHON_FILES, removal).installed == {"old": "1"}
    assert python_of(PYTHON_FILES, {f"{SITE_PACKAGES}/.wh..wh..opq": b""}).installed == {}


def test_installed_packages_have_normalised_names(python_of):
    names = ("Jinja2-3.1.dist-info", "a_b.c-1-py3.11.egg-info", "pip", "dist-info")
    installed = python_of(
        PYTHON_FILES, {f"{SITE_PACKAGES}/{name}/x": b"" for name in names}
    ).installed
    assert installed == {"pip": "24.0", "old": "1", "jinja2": "3.1", "a-b-c": "1"}


@pytest.mark.parametrize(
    ("layer", "error"),
    [
        ({"bin/sh": b"", **LIBC}, "has no Python 3 on its PATH"),
        ({"opt/python/bin/python3.12": b"", **LIBC}, "has no Python 3 on its PATH"),
        ({"lib/ld-musl-x86_64.so.1": b"", "usr/bin/python3.12": b""}, "does not use glibc"),
        (gzip.compress(b"no tar" * 1000), "cannot be read"),
        (b"\x28\xb5\x2f\xfd" + b"0" * 100, "cannot be read"),
    ],
    ids=["no Python", "not on PATH", "musl", "no tar", "zstd"],
)
def test_a_base_without_a_suitable_python_is_refused(python_of, layer, error):
    with pytest.raises(ImageError, match=error):
        python_of(layer)
