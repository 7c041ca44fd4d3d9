"""Which distributions provide a module, and what pip installs with a requirement.

Both are read from the metadata of the packages that are installed beside distlaunch, where
``distlaunch local`` runs. Nothing is known of other packages.
"""

from __future__ import annotations

import importlib.metadata
import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

TENSORFLOW: Final = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")
"""Builds of TensorFlow, all of the same requirements."""

_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "absl": ("absl-py",),
    "attr": ("attrs",),
    "bs4": ("beautifulsoup4",),
    "cv2": ("opencv-python", "opencv-python-headless", "opencv-contrib-python"),
    "dateutil": ("python-dateutil",),
    "distutils": ("setuptools",),
    "dotenv": ("python-dotenv",),
    "fitz": ("pymupdf",),
    "git": ("gitpython",),
    "google.cloud.secretmanager": ("google-cloud-secret-manager",),
    "google.oauth2": ("google-auth",),
    "google.protobuf": ("protobuf",),
    "googleapiclient": ("google-api-python-client",),
    "grpc": ("grpcio",),
    "hypertune": ("cloudml-hypertune",),
    "jwt": ("pyjwt",),
    "OpenSSL": ("pyopenssl",),
    "PIL": ("pillow",),
    "pkg_resources": ("setuptools",),
    "proto": ("proto-plus",),
    "psycopg2": ("psycopg2-binary", "psycopg2"),
    "serial": ("pyserial",),
    "skimage": ("scikit-image",),
    "sklearn": ("scikit-learn",),
    "tensorflow": TENSORFLOW,
    "tree": ("dm-tree",),
    "vertexai": ("google-cloud-aiplatform",),
    "yaml": ("pyyaml",),
    "zmq": ("pyzmq",),
}
_API_VERSION = re.compile(r"_v[0-9][a-z0-9]*$")
_CUDA_LIBRARIES = "nvidia-"  # of tensorflow[and-cuda]; they require only each other


def providers(module: str) -> tuple[str, ...]:
    """Return the distributions that provide a module, by name; the most common one first."""
    parts = [_API_VERSION.sub("", part) for part in module.split(".")]
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in _ALIASES:
            return _ALIASES[name]
        if parts[0] == "google" and (length == 3 or (length == 2 and parts[1] != "cloud")):
            return (_canonical(name),)
    return (_canonical(parts[0]),)


def installed_providers(module: str) -> set[str]:
    """Return the installed distributions that provide a module."""
    top = module.partition(".")[0]
    names = set(_top_levels().get(top, ()))
    if len(names) > 1:  # a namespace package, e.g. google
        names = {name for name in names if _has_module(name, module)}
    return set(map(_canonical, names))


def is_installed(name: str, specifier: SpecifierSet | None = None) -> bool:
    """Return whether a distribution, or its build of TensorFlow, is installed in such a version."""
    distribution = _distribution(name)
    if distribution is None:
        return name.startswith(_CUDA_LIBRARIES)
    return specifier is None or specifier.contains(distribution.version, prereleases=True)


def with_dependencies(
    requirements: Iterable[Requirement], environment: Mapping[str, str]
) -> set[str]:
    """Return the names of what pip installs for some requirements, as far as that is known."""
    pending = list(requirements)
    done: set[tuple[str, str]] = set()
    while pending:
        requirement = pending.pop()
        name = _canonical(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) not in done:
                done.add((name, extra))
                pending += _dependencies(name, {**environment, "extra": extra})
    return {name for name, _ in done}


def pin(name: str, suffix: str = "") -> str:
    """Return a pinned requirement, in the installed version if there is one."""
    distribution = _distribution(name)
    if distribution:
        return f"{name}=={distribution.version}{suffix}"
    return f"{name}==VERSION{suffix} ('pip index versions {name}' lists the versions)"


def _dependencies(name: str, environment: Mapping[str, str]) -> Iterator[Requirement]:
    from packaging.requirements import Requirement

    distribution = _distribution(name)
    for text in (distribution.requires or ()) if distribution else ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(dict(environment)):
            yield requirement


@cache
def _distribution(name: str) -> importlib.metadata.Distribution | None:
    names = (name, *TENSORFLOW) if name in TENSORFLOW else (name,)
    found = (each for name in names for each in importlib.metadata.distributions(name=name))
    return next(found, None)


@cache
def _top_levels() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _has_module(name: str, module: str) -> bool:
    path = module.replace(".", "/")
    files = importlib.metadata.files(name) or ()
    return any(str(file).startswith((f"{path}/__init__.", f"{path}.")) for file in files)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
