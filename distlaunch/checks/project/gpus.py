"""Rules for accelerators: the image's CUDA, its build of TensorFlow, NCCL, numbers of GPUs."""

from __future__ import annotations

import re
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.requirements import any_version, load_requirements
from distlaunch.job import machine_catalogue, reduction_server
from distlaunch.render import templates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.project.requirements import ImageRequirements
    from distlaunch.checks.request_view import JobRequest, PoolRequest
    from distlaunch.image.requirements import RequirementLine
    from distlaunch.submit.plan import LaunchRequest

_TENSORFLOW_GPU = re.compile(
    r"(?:docker\.io/)?tensorflow/tensorflow:"
    r"(?:latest|nightly|(?P<major>\d+)\.(?P<minor>\d+)[^@]*?)-gpu(?:-jupyter)?(?:@.*)?"
)
_PREBUILT = re.compile(
    r"(?:(?:us|europe|asia)-docker\.pkg\.dev/vertex-ai|gcr\.io/cloud-aiplatform)/training/"
    r"tf-[a-z]+\.(?P<major>\d+)-(?P<minor>\d+)\b.*"
)
# https://cloud.google.com/vertex-ai/docs/training/pre-built-containers; older ones ended before.
_LAST_PREBUILT, _PREBUILT_END = (2, 17), date(2026, 7, 11)
# The first version of which the image with -gpu has cuDNN 8.9, where TensorFlow needs 9:
# https://github.com/tensorflow/tensorflow/issues/94593
_FIRST_WITH_OLD_CUDNN = (2, 18)
_FIRST_WITH_CUDA = "2.14"  # of which pip can install CUDA: tensorflow[and-cuda]
_BUILDS = ("tensorflow", "tensorflow-cpu")
_BUILD = "tensorflow-build"
# These require tensorflow, directly or not.
_REQUIRING = {
    *("tf-keras", "tensorflow-hub", "tensorflow-text", "keras-hub"),
    *("tensorflow-recommenders", "tensorflow-decision-forests"),
}
_AND_CUDA = "write tensorflow[and-cuda]"
_MINOR = re.compile(r"(\d+)\.(\d+)")
_BASE = "python:3.12-slim"
_NCCL_SCRIPT = "/usr/local/gib/scripts/set_nccl_env.sh"
_PACKAGE = "google-reduction-server"


def problems(
    order: LaunchRequest, request: JobRequest, runtime: ImageRuntime | None, today: date
) -> Iterator[Problem]:
    """Yield why a cluster's images may not work with its GPUs."""
    yield from _image_problems(order, request, runtime, today)
    yield from _rdma_problems(order, request, runtime)
    if order.job.reduction_server and runtime and _PACKAGE not in _dockerfile(order, runtime):
        yield warning(
            "reduction-server-package",
            reduction_server.KEY,
            f"the Dockerfile does not install {_PACKAGE}, without which NCCL does not use the "
            "Reduction Server",
            "install it in your own Dockerfile, see docs/job-file.md",
        )


def unequal(request: JobRequest, *, is_bundled: bool) -> Iterator[Problem]:
    """Yield a problem if the chief and the workers have different numbers of GPUs.

    It is an error for the bundled trainer, and a warning for another program.
    """
    if not is_bundled and any(pool.role == "parameter_servers" for pool in request.pools):
        return
    make = error if is_bundled else warning
    remedy = "write the same number for both"
    for chief, pool in pairwise(pool for pool in request.pools if pool.is_training):
        has_tpu = "TPU" in f"{chief.accelerator} {pool.accelerator}"
        if chief.accelerator_count != pool.accelerator_count and not has_tpu:
            yield make(
                "accelerators-unequal",
                f"{pool.section}.accelerator.count",
                f"{pool.accelerator_count} on each of the workers and {chief.accelerator_count} on "
                "the chief: MultiWorkerMirroredStrategy needs the same number on each",
                remedy if is_bundled else f"{remedy}, unless the program uses another strategy",
            )


def _image_problems(
    order: LaunchRequest, request: JobRequest, runtime: ImageRuntime | None, today: date
) -> Iterator[Problem]:
    pools: dict[str, list[PoolRequest]] = {}
    for pool in request.pools:
        if image := pool.image or (runtime and runtime.base):
            pools.setdefault(image, []).append(pool)
    for image, users in pools.items():
        is_replaced = False
        where = "image.uri" if image == order.job.image.uri else users[0].section
        if runtime and image == runtime.base:
            requirements = load_requirements(order.job, order.folder, runtime)
            is_replaced = _installs_cuda(requirements, runtime)
            where = runtime.own.path if runtime.own else "image.base"
        has_gpu = any((pool.accelerator or "").startswith("NVIDIA") for pool in users)
        if has_gpu and _has_old_cudnn(image) and not is_replaced:
            yield warning(
                "image-cuda",
                where,
                f"{image} has CUDA 12.3 and cuDNN 8.9, with which TensorFlow 2.18 and later finds "
                "no GPU",
                f"{_instead(where)}, and tensorflow[and-cuda] in the requirements",
            )
        if _has_ended(image, today):
            yield warning(
                "image-ended",
                where,
                f"Vertex AI's prebuilt image {image} is no longer available or updated; the last "
                f"with TensorFlow ended on {_PREBUILT_END}",
                f"{_instead(where)}, and TensorFlow in the requirements",
            )


def _instead(where: str) -> str:
    if where == "image.base":
        return f"write image.base: {_BASE}"
    is_own = where == "image.uri" or where.startswith("cluster.")
    return f"build it from {_BASE}" if is_own else f"write FROM {_BASE} in {where}"


def _has_old_cudnn(image: str) -> bool:
    match = _TENSORFLOW_GPU.fullmatch(image)
    if match is None:
        return False
    has_version = match["major"] is not None
    return not has_version or (int(match["major"]), int(match["minor"])) >= _FIRST_WITH_OLD_CUDNN


def _has_ended(image: str, today: date) -> bool:
    match = _PREBUILT.fullmatch(image)
    if match is None or today < _PREBUILT_END:
        return False
    return (int(match["major"]), int(match["minor"])) <= _LAST_PREBUILT


def _rdma_problems(
    order: LaunchRequest, request: JobRequest, runtime: ImageRuntime | None
) -> Iterator[Problem]:
    """Yield a warning of images that do not set up NCCL for RDMA; rendered ones do.

    Source: https://cloud.google.com/vertex-ai/docs/training/configure-compute
    """
    is_own = runtime is not None and runtime.own is not None
    if _NCCL_SCRIPT in f"{order.job.cluster}{_dockerfile(order, runtime) if is_own else ''}":
        return
    for pool in request.pools:
        if machine_catalogue.has_rdma(pool.machine) and (pool.image or is_own):
            yield warning(
                "rdma-environment",
                pool.section,
                f"{pool.machine} has RDMA, and NCCL needs the settings of {_NCCL_SCRIPT} for it",
                f"source {_NCCL_SCRIPT} in the entrypoint of the image, before the program starts",
            )


def _dockerfile(order: LaunchRequest, runtime: ImageRuntime | None) -> str:
    """Return the text of the user's Dockerfile or template, if there is one."""
    if runtime and runtime.own:
        return runtime.own.text
    template = order.folder / templates.OWN_TEMPLATES / "Dockerfile.j2"
    return template.read_text(encoding="utf-8", errors="replace") if template.is_file() else ""


def build_problems(
    requirements: ImageRequirements, request: JobRequest, runtime: ImageRuntime
) -> Iterator[Problem]:
    """Yield builds of TensorFlow that do not use the accelerators, or install CUDA for nothing."""
    kinds = {pool.accelerator or "" for pool in request.pools if pool.image is None}
    gpu = next((kind for kind in sorted(kinds) if kind.startswith("NVIDIA")), None)
    installed = [line for line in requirements.installed if line.name in _BUILDS]
    if any(kind.startswith("TPU") for kind in kinds) and not runtime.own:
        for line in installed:
            what = f"{line.name} does not compute on TPUs"
            yield warning(_BUILD, line.location, what, "write tensorflow-tpu")
    if gpu:
        yield from _gpu_build_problems(requirements, gpu, runtime)
    elif runtime.is_plain:
        what = "installs CUDA (gigabytes), which a cluster without GPUs does not need"
        for line in filter(_has_cuda, installed):
            yield warning(_BUILD, line.location, what, "write tensorflow-cpu")


def _gpu_build_problems(
    requirements: ImageRequirements, gpu: str, runtime: ImageRuntime
) -> Iterator[Problem]:
    builds = [line for line in requirements.lines if line.name in _BUILDS]
    installed = [line for line in builds if not line.is_constraint]
    own = runtime.own
    is_for_cpus = own and (own.is_without_cuda or own.made_for_gpus is False)
    if runtime.is_plain or (own and is_for_cpus and own.names(requirements.file)):
        for line in installed:
            yield from _pip_build_problems(line, gpu, runtime)
    for line in builds:
        if line.is_constraint and line.requirement and _has_cuda(line):
            yield error(
                _BUILD,
                line.location,
                "the image gets tensorflow[and-cuda], and pip refuses extras in constraints",
                f"{_AND_CUDA}{line.requirement.specifier} in {requirements.file}",
            )
    if runtime.is_plain:
        yield from _requiring_problems(requirements, gpu)
    yield from _image_build_problems(requirements, gpu, runtime)


def _pip_build_problems(
    line: RequirementLine, gpu: str, runtime: ImageRuntime
) -> Iterator[Problem]:
    specifier = line.requirement.specifier if line.requirement else None
    if not _has_cuda(line):
        what, remedy = f"{line.name} has no CUDA, so it does not compute on {gpu}", _AND_CUDA
        if not runtime.own:
            what += "; it is hash-pinned, so it is not replaced"
            remedy += " with its hashes, or remove the hashes"
        yield error(_BUILD, line.location, what, remedy)
    elif specifier and not any_version([specifier, f">={_FIRST_WITH_CUDA}"]):
        yield error(
            _BUILD,
            line.location,
            f"tensorflow{specifier} does not compute on {gpu}: pip installs CUDA with TensorFlow "
            f"{_FIRST_WITH_CUDA} and later",
            "use a later version, or image.base: tensorflow/tensorflow:VERSION-gpu",
        )


def _requiring_problems(requirements: ImageRequirements, gpu: str) -> Iterator[Problem]:
    """Yield a package by which pip installs TensorFlow without CUDA."""
    if requirements.names & {*_BUILDS, "tf-nightly"}:
        return
    requiring = [line for line in requirements.installed if line.name in _REQUIRING]
    for line in requiring[:1]:
        what = f"{line.name} requires tensorflow, which has no CUDA and does not compute on {gpu}"
        yield error(_BUILD, line.location, what, "add tensorflow[and-cuda]")


def _image_build_problems(
    requirements: ImageRequirements, gpu: str, runtime: ImageRuntime
) -> Iterator[Problem]:
    own, tag = runtime.own, runtime.tensorflow_tag
    if own and own.is_without_cuda and own.tensorflow:
        location, name = own.tensorflow
        what = f"{name} has no CUDA, so it does not compute on {gpu}"
        yield error(_BUILD, location, what, _AND_CUDA)
    if tag and "gpu" not in tag and not _installs_cuda(requirements, runtime):
        minor = _MINOR.match(tag)
        base, packages = _BASE, f", and {_AND_CUDA} in the requirements"
        if minor and (int(minor[1]), int(minor[2])) < _FIRST_WITH_OLD_CUDNN:
            base, packages = f"tensorflow/tensorflow:{tag}-gpu", ""
        yield error(
            _BUILD,
            own.path if own else "image.base",
            f"{runtime.base} computes on CPUs only, and the machines have {gpu}",
            f"{f'write FROM {base} in {own.path}' if own else f'set image.base: {base}'}{packages}",
        )


def _installs_cuda(requirements: ImageRequirements, runtime: ImageRuntime) -> bool:
    """Return whether the requirements or the user's Dockerfile install TensorFlow with CUDA."""
    if runtime.own and "[and-cuda]" in runtime.own.text:
        return True
    return any(_has_cuda(line) for line in requirements.installed if line.name in _BUILDS)


def _has_cuda(line: RequirementLine) -> bool:
    return line.requirement is not None and "and-cuda" in line.requirement.extras
