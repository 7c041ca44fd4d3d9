"""Rules for the images of GPU clusters: CUDA libraries, NCCL's settings, packages."""

from __future__ import annotations

import re
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.requirements import load_requirements
from distlaunch.checks.project.tensorflow import FIRST_WITH_OLD_CUDNN, has_cuda
from distlaunch.job import machine_catalogue, reduction_server
from distlaunch.render import templates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.request_view import JobRequest, PoolRequest
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
_BASE = "python:3.12-slim"
_NCCL_SCRIPT = "/usr/local/gib/scripts/set_nccl_env.sh"
_PACKAGE = "google-reduction-server"


def problems(
    order: LaunchRequest, request: JobRequest, runtime: ImageRuntime | None, today: date
) -> Iterator[Problem]:
    """Yield why a cluster's images may not work with its GPUs.

    Parameters
    ----------
    order
        The job and its folder.
    request
        The job's request.
    runtime
        The image that is built, None if none is.
    today
        The day on which an image is available or not.
    """
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
    has_servers = any(pool.role == "parameter_servers" for pool in request.pools)
    if has_servers and not is_bundled:
        return
    make = error if is_bundled else warning
    remedy = "write the same number for both"
    for chief, pool in pairwise(pool for pool in request.pools if pool.is_training):
        if chief.accelerator_count != pool.accelerator_count and not _has_tpu(chief, pool):
            yield make(
                "accelerators-unequal",
                f"{pool.section}.accelerator.count",
                f"{pool.accelerator_count} on each of the workers and {chief.accelerator_count} on "
                "the chief: MultiWorkerMirroredStrategy needs the same number on each",
                remedy if is_bundled else f"{remedy}, unless the program uses another strategy",
            )


def _has_tpu(*pools: PoolRequest) -> bool:
    return any((pool.accelerator or "").startswith("TPU") for pool in pools)


def _image_problems(
    order: LaunchRequest, request: JobRequest, runtime: ImageRuntime | None, today: date
) -> Iterator[Problem]:
    for image, pools in _images(request, runtime).items():
        is_built = runtime is not None and image == runtime.base
        where = _location(order, pools[0], runtime if is_built else None)
        has_gpu = any((pool.accelerator or "").startswith("NVIDIA") for pool in pools)
        if has_gpu and _has_old_cudnn(image) and not (is_built and _installs_cuda(order, runtime)):
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


def _images(request: JobRequest, runtime: ImageRuntime | None) -> dict[str, list[PoolRequest]]:
    """Return the pools by their image, or by the base image that theirs is built from."""
    pools: dict[str, list[PoolRequest]] = {}
    for pool in request.pools:
        image = pool.image or (runtime and runtime.base)
        if image:
            pools.setdefault(image, []).append(pool)
    return pools


def _location(order: LaunchRequest, pool: PoolRequest, runtime: ImageRuntime | None) -> str:
    if runtime:
        return runtime.own_dockerfile or "image.base"
    return "image.uri" if pool.image == order.job.image.uri else pool.section


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
    return not has_version or (int(match["major"]), int(match["minor"])) >= FIRST_WITH_OLD_CUDNN


def _installs_cuda(order: LaunchRequest, runtime: ImageRuntime | None) -> bool:
    if runtime is None:
        return False
    return has_cuda(load_requirements(order.job, order.folder, runtime), runtime)


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
