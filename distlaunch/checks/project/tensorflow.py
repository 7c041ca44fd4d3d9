"""Which TensorFlow a job gets: whether it can be installed, and whether it uses accelerators."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.requirements import any_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import Surroundings
    from distlaunch.checks.project.requirements import Listed, Requirements
    from distlaunch.checks.request_view import JobRequest

NAMES = ("tensorflow", "tensorflow-cpu")

FIRST_WITH_OLD_CUDNN = (2, 18)
"""Of which the image with ``-gpu`` has cuDNN 8.9, where TensorFlow needs 9.

https://github.com/tensorflow/tensorflow/issues/94593
"""
_FIRST_WITH_CUDA = (2, 14)  # of which pip can install CUDA: tensorflow[and-cuda]
_MOST_PATCHES = 10
_MINOR = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Release:
    """What a minor version of TensorFlow needs, by the metadata of its last patch on PyPI.

    Parameters
    ----------
    python
        The first and the last version that there are wheels for.
    needs
        What it requires of others, as specifiers by name.
    """

    python: tuple[tuple[int, int], tuple[int, int]]
    needs: Mapping[str, str]


_OLD_PROTOBUF = ">=3.20.3,<5"
RELEASES = {
    (2, 13): Release(
        ((3, 8), (3, 11)),
        {"keras": ">=2.13.1,<2.14", "numpy": ">=1.22,<=1.24.3", "protobuf": _OLD_PROTOBUF}
        | {"tensorboard": ">=2.13,<2.14", "typing-extensions": "<4.6"},
    ),
    (2, 14): Release(
        ((3, 9), (3, 11)),
        {"keras": ">=2.14,<2.15", "numpy": ">=1.23.5,<2", "protobuf": _OLD_PROTOBUF}
        | {"tensorboard": ">=2.14,<2.15", "wrapt": ">=1.11,<1.15", "ml-dtypes": "==0.2.0"},
    ),
    (2, 15): Release(
        ((3, 9), (3, 11)),
        {"keras": ">=2.15,<2.16", "numpy": ">=1.23.5,<2", "protobuf": _OLD_PROTOBUF}
        | {"tensorboard": ">=2.15,<2.16", "wrapt": ">=1.11,<1.15", "ml-dtypes": ">=0.2,<0.4"},
    ),
    (2, 16): Release(
        ((3, 9), (3, 12)),
        {"keras": ">=3", "numpy": ">=1.23.5,<2", "protobuf": _OLD_PROTOBUF, "h5py": ">=3.10"}
        | {"tensorboard": ">=2.16,<2.17", "ml-dtypes": "~=0.3.1"},
    ),
    (2, 17): Release(
        ((3, 9), (3, 12)),
        {"keras": ">=3", "numpy": ">=1.23.5,<2", "protobuf": _OLD_PROTOBUF, "h5py": ">=3.10"}
        | {"tensorboard": ">=2.17,<2.18", "ml-dtypes": ">=0.3.1,<0.5"},
    ),
    (2, 18): Release(
        ((3, 9), (3, 12)),
        {"keras": ">=3.5", "numpy": ">=1.26,<2.1", "protobuf": ">=3.20.3,<6", "h5py": ">=3.11"}
        | {"tensorboard": ">=2.18,<2.19", "ml-dtypes": ">=0.4,<1"},
    ),
    (2, 19): Release(
        ((3, 9), (3, 12)),
        {"keras": ">=3.5", "numpy": ">=1.26,<2.2", "protobuf": ">=3.20.3,<6", "h5py": ">=3.11"}
        | {"tensorboard": ">=2.19,<2.20", "ml-dtypes": ">=0.5.1,<1"},
    ),
    (2, 20): Release(
        ((3, 9), (3, 13)),
        {"keras": ">=3.10", "numpy": ">=1.26", "protobuf": ">=5.28", "h5py": ">=3.11"}
        | {"tensorboard": ">=2.20,<2.21", "ml-dtypes": ">=0.5.1,<1"},
    ),
    (2, 21): Release(
        ((3, 10), (3, 13)),
        {"keras": ">=3.12", "numpy": ">=1.26", "protobuf": ">=6.31.1,<8", "h5py": ">=3.11,<3.15"}
        | {"ml-dtypes": ">=0.5.1,<1"},
    ),
}
"""By minor version."""

_BEFORE = {
    **{(1, minor): ((3, 3), (3, 7)) for minor in range(16)},
    **dict.fromkeys([(2, 0), (2, 1)], ((3, 5), (3, 7))),
    **dict.fromkeys([(2, 2), (2, 3)], ((3, 5), (3, 8))),
    (2, 4): ((3, 6), (3, 8)),
    **dict.fromkeys([(2, 5), (2, 6)], ((3, 6), (3, 9))),
    (2, 7): ((3, 7), (3, 9)),
    **dict.fromkeys([(2, 8), (2, 9), (2, 10), (2, 11)], ((3, 7), (3, 10))),
    (2, 12): ((3, 8), (3, 11)),
}
_ALL = {minor: Release(python, {}) for minor, python in _BEFORE.items()} | RELEASES
"""With those of which no more is told than the versions of Python that there are wheels for."""

_REQUIRING = (  # which require tensorflow, directly or not
    *("tf-keras", "tensorflow-hub", "tensorflow-text", "keras-hub"),
    *("tensorflow-recommenders", "tensorflow-decision-forests"),
)
_NOT_FOR_LINUX = ("tensorflow-macos", "tensorflow-metal", "tensorflow-intel")
_GPU_ALONE = "tensorflow-gpu"
_REFUSING = (2, 12)  # tensorflow-gpu of this version only says that it is no more
_OF_THE_SAME_VERSION = ("tf-keras", "tensorflow-text")  # 2.21 of these wants TensorFlow 2.21


def clashes(found: Requirements, around: Surroundings) -> Iterator[Problem]:
    """Yield requirements that no release of the TensorFlow that is asked for goes with."""
    for each in found.installed:
        minors = _minors(each) if each.name in NAMES else ()
        told = [list(_against(minor, each, found, around)) for minor in minors]
        if told and all(told):
            yield from told[-1][:1]


def builds(found: Requirements, asked: JobRequest, around: Surroundings) -> Iterator[Problem]:
    """Yield a build of TensorFlow that does not use the accelerators, or brings them in vain."""
    kinds = {pool.accelerator or "" for pool in asked.pools if pool.image is None}
    gpu = next((kind for kind in sorted(kinds) if kind.startswith("NVIDIA")), None)
    for each in found.installed:
        if each.name in NAMES:
            yield from _build(each, gpu, found, around)
            if around.own_dockerfile is None and any(kind.startswith("TPU") for kind in kinds):
                yield warning(
                    "tensorflow-build",
                    each.where,
                    f"{each.name} does not compute on TPUs",
                    "write tensorflow-tpu instead",
                )
        elif around.is_installed:
            yield from _elsewhere(each, gpu, around)
    if gpu:
        yield from _without_cuda(found, gpu, around)
    tag = around.tensorflow_tag
    if gpu and tag and "gpu" not in tag and not has_cuda(found, around):
        yield error(
            "tensorflow-build",
            around.own_dockerfile or "image.base",
            f"{around.base} computes on CPUs alone, and the machines have {gpu}",
            _with_cuda(tag, around),
        )


def _without_cuda(found: Requirements, gpu: str, around: Surroundings) -> Iterator[Problem]:
    """Yield a TensorFlow without CUDA that no requirement names: constraints, packages, RUN."""
    for each in found.of(*NAMES):
        if each.is_constraint and "and-cuda" in each.extras:
            yield error(
                "tensorflow-build",
                each.where,
                "the image gets tensorflow[and-cuda], and pip takes no extras in constraints",
                f"write tensorflow[and-cuda]{each.specifier} in {found.name} instead",
            )
    requiring = next((each for each in found.installed if each.name in _REQUIRING), None)
    if around.is_plain and requiring and not set(found.names) & {*NAMES, "tf-nightly"}:
        yield error(
            "tensorflow-build",
            requiring.where,
            f"{requiring.name} requires tensorflow, which has no CUDA and does not compute on "
            f"{gpu}",
            "add tensorflow[and-cuda]",
        )
    own = around.own
    if own and own.is_without_cuda and own.tensorflow:
        line, name = own.tensorflow
        yield error(
            "tensorflow-build",
            f"{own.path}:{line}",
            f"{name} alone has no CUDA, without which it does not compute on {gpu}",
            "write tensorflow[and-cuda]",
        )


def _build(
    each: Listed, gpu: str | None, found: Requirements, around: Surroundings
) -> Iterator[Problem]:
    is_installed = gpu and around.installs_without_cuda(found.name or "")
    if not around.is_plain and not is_installed:
        return
    if gpu and each.name == "tensorflow-cpu" and around.own:
        yield error(
            "tensorflow-build",
            each.where,
            f"tensorflow-cpu does not compute on {gpu}, and {around.own.path} installs it",
            "write tensorflow[and-cuda]",
        )
    elif gpu and each.name == "tensorflow-cpu":
        yield error(
            "tensorflow-build",
            each.where,
            f"tensorflow-cpu does not compute on {gpu}, and stays for its hashes",
            "write tensorflow[and-cuda] with hashes of its own, or leave the hashes out",
        )
    elif gpu and "and-cuda" not in each.extras:
        yield error(
            "tensorflow-build",
            each.where,
            f"tensorflow alone has no CUDA, without which it does not compute on {gpu}",
            "write tensorflow[and-cuda]",
        )
    elif gpu and _minors(each) and max(_minors(each)) < _FIRST_WITH_CUDA:
        yield error(
            "tensorflow-build",
            each.where,
            f"pip installs CUDA with TensorFlow 2.14 and later, without which none computes on "
            f"{gpu}",
            "ask for a later one, or for image.base: tensorflow/tensorflow:VERSION-gpu",
        )
    elif not gpu and "and-cuda" in each.extras:
        yield warning(
            "tensorflow-build",
            each.where,
            "it brings CUDA, some gigabytes that a cluster without GPUs has no use for",
            "write tensorflow-cpu",
        )


def _elsewhere(each: Listed, gpu: str | None, around: Surroundings) -> Iterator[Problem]:
    """Yield a build of TensorFlow for other systems, or of another time."""
    if each.name in _NOT_FOR_LINUX:
        yield error(
            "tensorflow-build",
            each.where,
            f"{each.name} is not there for Linux, which the image has",
            f"write {each.name}{each.specifier}; sys_platform != 'linux', and tensorflow beside it",
        )
    elif each.name == _GPU_ALONE and ((gpu and around.is_plain) or not _is_there(each, around)):
        yield error(
            "tensorflow-build",
            each.where,
            f"{each.name} brings no CUDA, and ended with 2.11, which is for Python 3.7 to 3.10",
            f"write {'tensorflow[and-cuda]' if around.own else 'tensorflow'}, of 2.14 or later",
        )


def _is_there(each: Listed, around: Surroundings) -> bool:
    """Whether pip finds what was called tensorflow-gpu."""
    here = around.python
    fitting = [
        minor
        for minor, (first, last) in _BEFORE.items()
        if minor < _REFUSING and (here is None or first <= here <= last)
    ]
    return not _takes(each, _REFUSING) and any(_takes(each, minor) for minor in fitting)


def _with_cuda(tag: str, around: Surroundings) -> str:
    """Return which base has CUDA in place of an image of TensorFlow's."""
    number = _MINOR.match(tag)
    if number and (int(number[1]), int(number[2])) < FIRST_WITH_OLD_CUDNN:
        return f"name tensorflow/tensorflow:{tag}-gpu"
    base = around.begin_with("python:3.12-slim")
    return f"{base}, and write tensorflow[and-cuda] in the requirements"


def has_cuda(found: Requirements, around: Surroundings) -> bool:
    """Return whether the requirements or the user's Dockerfile install TensorFlow with CUDA."""
    if around.own and "[and-cuda]" in around.own.text:
        return True
    return any("and-cuda" in each.extras for each in found.installed if each.name in NAMES)


def _against(
    minor: tuple[int, int], asked: Listed, found: Requirements, around: Surroundings
) -> Iterator[Problem]:
    """Yield what speaks against a minor version."""
    name, release = f"TensorFlow {minor[0]}.{minor[1]}", _ALL[minor]
    (first, last), here = release.python, around.python
    if here and around.is_installed and not first <= here <= last:
        yield error(
            "requirement-clash",
            asked.where,
            f"{name} is there for Python {_dotted(first)} to {_dotted(last)}, and {around.base} "
            f"has {_dotted(here)}",
            around.begin_with(f"python:{_dotted(min(last, max(first, here)))}-slim"),
        )
    needs = dict(release.needs) | {
        other: f">={_dotted(minor)},<{minor[0]}.{minor[1] + 1}" for other in _OF_THE_SAME_VERSION
    }
    for other in found.listed:
        need = needs.get(other.name)
        if need and any_version([other.specifier]) and not _go_together(other, need):
            yield error(
                "requirement-clash",
                other.where,
                f"{name} ({asked.where}) goes with {other.name}{need}, not with "
                f"{other.name}{other.specifier}",
                f"write {other.name}{need}",
            )


def _minors(each: Listed) -> list[tuple[int, int]]:
    """Return the known minor versions that a requirement takes; none where it takes others."""
    newest = max(_ALL)
    beyond = [(newest[0], newest[1] + 1), (newest[0] + 1, 0)]
    if any(_takes(each, minor) for minor in beyond):
        return []
    return [minor for minor in _ALL if _takes(each, minor)]


def _takes(each: Listed, minor: tuple[int, int]) -> bool:
    from packaging.version import Version

    patches = (Version(f"{_dotted(minor)}.{patch}") for patch in range(_MOST_PATCHES))
    return any(each.specifier.contains(patch, prereleases=True) for patch in patches)


def _go_together(other: Listed, need: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return any_version([other.specifier, SpecifierSet(need)])


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
