"""Rules for the build of TensorFlow: whether it uses the machines' accelerators."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.project.requirements import ImageRequirements
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.image.requirements import RequirementLine

FIRST_WITH_OLD_CUDNN = (2, 18)
"""Of which the image with ``-gpu`` has cuDNN 8.9, where TensorFlow needs 9.

https://github.com/tensorflow/tensorflow/issues/94593
"""
_FIRST_WITH_CUDA = "2.14"  # of which pip can install CUDA: tensorflow[and-cuda]
_MINOR = re.compile(r"(\d+)\.(\d+)")
_BUILDS = ("tensorflow", "tensorflow-cpu")
_AND_CUDA = "write tensorflow[and-cuda]"
# These require tensorflow, directly or not.
_REQUIRING = {
    *("tf-keras", "tensorflow-hub", "tensorflow-text", "keras-hub"),
    *("tensorflow-recommenders", "tensorflow-decision-forests"),
}
_NOT_FOR_LINUX = ("tensorflow-macos", "tensorflow-metal", "tensorflow-intel")


def problems(
    requirements: ImageRequirements, request: JobRequest, runtime: ImageRuntime
) -> Iterator[Problem]:
    """Yield builds of TensorFlow that do not use the accelerators, or install CUDA for nothing."""
    kinds = {pool.accelerator or "" for pool in request.pools if pool.image is None}
    gpu = next((kind for kind in sorted(kinds) if kind.startswith("NVIDIA")), None)
    has_tpu = any(kind.startswith("TPU") for kind in kinds)
    for line in requirements.installed:
        if line.name in _BUILDS and has_tpu and not runtime.own:
            yield _problem(
                line.location,
                f"{line.name} does not compute on TPUs",
                "write tensorflow-tpu",
                is_error=False,
            )
        if runtime.installs_requirements and line.name in _NOT_FOR_LINUX:
            yield _problem(
                line.location,
                f"{line.name} is not available for Linux, the image's system",
                f"write {line.text}; sys_platform != 'linux', and add tensorflow",
            )
        if not gpu and runtime.is_plain and line.name in _BUILDS and _has_cuda(line):
            yield _problem(
                line.location,
                "installs CUDA (gigabytes), which a cluster without GPUs does not need",
                "write tensorflow-cpu",
                is_error=False,
            )
    if gpu:
        yield from _gpu_problems(requirements, gpu, runtime)


def has_cuda(requirements: ImageRequirements, runtime: ImageRuntime) -> bool:
    """Return whether the requirements or the user's Dockerfile install TensorFlow with CUDA."""
    if runtime.own and "[and-cuda]" in runtime.own.text:
        return True
    return any(_has_cuda(line) for line in requirements.installed if line.name in _BUILDS)


def _gpu_problems(
    requirements: ImageRequirements, gpu: str, runtime: ImageRuntime
) -> Iterator[Problem]:
    own = runtime.own
    names_file = own and posixpath.basename(requirements.file) in own.text
    if runtime.is_plain or (own and names_file and own.is_without_cuda):
        for line in requirements.installed:
            if line.name in _BUILDS:
                yield from _build_problems(line, gpu, runtime)
    if runtime.is_plain:
        yield from _other_packages(requirements, gpu, runtime)
    for line in requirements.lines:
        if line.is_constraint and line.name in _BUILDS and _has_cuda(line):
            specifier = line.requirement.specifier if line.requirement else ""
            yield _problem(
                line.location,
                "the image gets tensorflow[and-cuda], and pip refuses extras in constraints",
                f"write tensorflow[and-cuda]{specifier} in {requirements.file}",
            )
    if own and own.is_without_cuda and own.tensorflow:
        location, name = own.tensorflow
        yield _problem(location, f"{name} has no CUDA, so it does not compute on {gpu}", _AND_CUDA)
    tag = runtime.tensorflow_tag
    if tag and "gpu" not in tag and not has_cuda(requirements, runtime):
        yield _problem(
            runtime.own_dockerfile or "image.base",
            f"{runtime.base} computes on CPUs only, and the machines have {gpu}",
            _base_with_cuda(tag, runtime),
        )


def _build_problems(line: RequirementLine, gpu: str, runtime: ImageRuntime) -> Iterator[Problem]:
    specifier = line.requirement.specifier if line.requirement else None
    if not _has_cuda(line):
        hashes = "" if runtime.own else " with its hashes, or remove the hashes"
        what = f"{line.name} has no CUDA, so it does not compute on {gpu}"
        if hashes:
            what += "; it is hash-pinned, so it is not replaced"
        yield _problem(line.location, what, f"{_AND_CUDA}{hashes}")
    elif specifier and _is_below(str(specifier), _FIRST_WITH_CUDA):
        yield _problem(
            line.location,
            f"tensorflow{specifier} does not compute on {gpu}: pip installs CUDA with TensorFlow "
            f"{_FIRST_WITH_CUDA} and later",
            "use a later version, or image.base: tensorflow/tensorflow:VERSION-gpu",
        )


def _other_packages(
    requirements: ImageRequirements, gpu: str, runtime: ImageRuntime
) -> Iterator[Problem]:
    """Yield other packages that need TensorFlow with CUDA, or were that once."""
    for line in requirements.installed:
        if line.name == "tensorflow-gpu":
            yield _problem(
                line.location,
                "tensorflow-gpu has no CUDA, and ended with 2.11 (Python 3.7 to 3.10)",
                f"write {'tensorflow[and-cuda]' if runtime.own else 'tensorflow'}, 2.14 or later",
            )
    requiring = [each for each in requirements.installed if each.name in _REQUIRING]
    if requiring and requirements.names.isdisjoint({*_BUILDS, "tf-nightly"}):
        line = requiring[0]
        yield _problem(
            line.location,
            f"{line.name} requires tensorflow, which has no CUDA and does not compute on {gpu}",
            "add tensorflow[and-cuda]",
        )


def _base_with_cuda(tag: str, runtime: ImageRuntime) -> str:
    """Return the remedy for an image of TensorFlow without CUDA."""
    minor = _MINOR.match(tag)
    if minor and (int(minor[1]), int(minor[2])) < FIRST_WITH_OLD_CUDNN:
        return runtime.change_base(f"tensorflow/tensorflow:{tag}-gpu")
    base = runtime.change_base("python:3.12-slim")
    return f"{base}, and write tensorflow[and-cuda] in the requirements"


def _has_cuda(line: RequirementLine) -> bool:
    return line.requirement is not None and "and-cuda" in line.requirement.extras


def _is_below(specifier: str, version: str) -> bool:
    """Return whether all versions of a specifier are below a version."""
    from distlaunch.checks.project.requirements import any_version

    return not any_version([specifier, f">={version}"])


def _problem(where: str, what: str, remedy: str, *, is_error: bool = True) -> Problem:
    make = error if is_error else warning
    return make("tensorflow-build", where, what, remedy)
