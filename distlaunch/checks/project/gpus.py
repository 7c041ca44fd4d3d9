"""Rules for accelerators: the image's CUDA, its build of TensorFlow, NCCL, numbers of GPUs."""

from __future__ import annotations

import re
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.image_runtime import tensorflow_tag
from distlaunch.checks.project.requirements import load_requirements
from distlaunch.image.recipe import NCCL_SCRIPT
from distlaunch.job import reduction_server
from distlaunch.job.model import DEFAULT_BASE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.project.requirements import ImageRequirements
    from distlaunch.image.requirements import RequirementLine
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.model import Job
    from distlaunch.job.vertex.view import JobRequest, PoolRequest

_PREBUILT = re.compile(
    r"(?:(?:us|europe|asia)-docker\.pkg\.dev/vertex-ai|gcr\.io/cloud-aiplatform)/training/"
    r"tf-[a-z]+\.(\d+)-(\d+)\b.*"
)
_GPU_TAG = re.compile(r"(?:latest|nightly|(\d+)\.(\d+).*)-gpu(?:-jupyter)?")
# https://cloud.google.com/vertex-ai/docs/training/pre-built-containers; older ones ended before.
_FIRST_AFTER_PREBUILT, _PREBUILT_END = (2, 18), date(2026, 7, 11)
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
_FOR_TPUS = ("tensorflow-tpu==2.20.0", "libtpu==0.0.14")
# tf.sysconfig.get_build_info() of TensorFlow 2.21: kernels for 6.0, 7.0, 8.0 and 8.9, PTX for 9.0.
# On later GPUs it fails: https://github.com/tensorflow/tensorflow/issues/97387
_FIRST_WITHOUT_KERNELS = 10.0
_PACKAGE = "google-reduction-server"


def problems(
    launch: LaunchRequest,
    request: JobRequest,
    catalogue: Catalogue,
    runtime: ImageRuntime | None,
    today: date,
) -> Iterator[Problem]:
    """Yield why a cluster's images may not work with its GPUs."""
    yield from _image_problems(launch, request, runtime, today)
    yield from _rdma_problems(launch, request, catalogue, runtime)
    yield from _kernel_problems(request, catalogue, runtime)
    own = runtime.own.text if runtime and runtime.own else runtime.template if runtime else ""
    if launch.job.reduction_server and runtime and _PACKAGE not in own:
        what = f"the Dockerfile does not install {_PACKAGE}, which NCCL needs to use it"
        remedy = "install it in your own Dockerfile, with apt-get from Google's packages"
        yield warning("reduction-server-package", reduction_server.KEY, what, remedy)


def unequal(request: JobRequest, *, is_bundled: bool) -> Iterator[Problem]:
    """Yield a problem if the chief and the workers have different numbers of GPUs.

    It is an error for the bundled trainer, and a warning for another program.
    """
    if request.has_parameter_servers:
        return
    make = error if is_bundled else warning
    remedy = "write the same number for both"
    if not is_bundled:
        remedy += ", unless the program uses another strategy"
    for chief, pool in pairwise(pool for pool in request.pools if pool.is_training):
        has_tpu = "TPU" in f"{chief.accelerator} {pool.accelerator}"
        if chief.accelerator_count != pool.accelerator_count and not has_tpu:
            counts = (
                f"{pool.accelerator_count} on each worker, {chief.accelerator_count} on the chief"
            )
            what = f"{counts}: MultiWorkerMirroredStrategy needs the same number on each"
            where = f"{pool.section}.{'gpus' if pool.is_on_slurm else 'accelerator.count'}"
            yield make("accelerators-unequal", where, what, remedy)


def _image_problems(
    launch: LaunchRequest, request: JobRequest, runtime: ImageRuntime | None, today: date
) -> Iterator[Problem]:
    pools: dict[str, list[PoolRequest]] = {}
    for pool in request.pools:
        if image := pool.image or (runtime and runtime.base):
            pools.setdefault(image, []).append(pool)
    for image, users in pools.items():
        is_base = runtime is not None and image == runtime.base
        where = "image.uri" if image == launch.job.image.uri else users[0].section
        instead = f"build it from {DEFAULT_BASE}"
        if runtime and is_base:
            where = runtime.own.path if runtime.own else "image.base"
            instead = runtime.set_base(DEFAULT_BASE)
        has_gpu = any((pool.accelerator or "").startswith("NVIDIA") for pool in users)
        match = _GPU_TAG.fullmatch(tensorflow_tag(image) or "")
        if has_gpu and match and _is_at_least(match, _FIRST_WITH_OLD_CUDNN):
            requirements = (
                load_requirements(launch.job, launch.folder, runtime) if runtime else None
            )
            if not (is_base and requirements and _installs_cuda(requirements)):
                what = f"{image} has cuDNN 8.9, and TensorFlow 2.18 and later needs 9 to find GPUs"
                remedy = f"{instead}, and tensorflow[and-cuda] in the requirements"
                yield warning("image-cuda", where, what, remedy)
        match = _PREBUILT.fullmatch(image)
        if match and today >= _PREBUILT_END and not _is_at_least(match, _FIRST_AFTER_PREBUILT):
            what = f"Vertex AI no longer offers {image}; the last ended on {_PREBUILT_END}"
            remedy = f"{instead}, and TensorFlow in the requirements"
            yield warning("image-ended", where, what, remedy)


def _is_at_least(match: re.Match[str], version: tuple[int, int]) -> bool:
    """Return whether a matched version is this one or later, as one without numbers is."""
    return match[1] is None or (int(match[1]), int(match[2])) >= version


def _rdma_problems(
    launch: LaunchRequest,
    request: JobRequest,
    catalogue: Catalogue,
    runtime: ImageRuntime | None,
) -> Iterator[Problem]:
    """Yield a warning of images that do not set up NCCL for RDMA; rendered ones do.

    Source: https://cloud.google.com/vertex-ai/docs/training/configure-compute
    """
    own = runtime.own if runtime else None
    if NCCL_SCRIPT in f"{launch.job.cluster}{own.text if own else ''}":
        return
    for pool in request.pools:
        if catalogue.machine(pool.machine).rdma and (pool.image or own):
            what = f"{pool.machine} has RDMA, and NCCL needs the settings of {NCCL_SCRIPT} for it"
            remedy = f"source {NCCL_SCRIPT} in the entrypoint of the image"
            yield warning("rdma-environment", pool.section, what, remedy)


def _kernel_problems(
    request: JobRequest, catalogue: Catalogue, runtime: ImageRuntime | None
) -> Iterator[Problem]:
    """Yield a warning of GPUs that TensorFlow has no kernels for; NVIDIA's images may have them."""
    for pool in request.pools:
        image = pool.image or (runtime and runtime.base) or ""
        capability = catalogue.compute_capability.get(pool.accelerator or "", 0.0)
        if capability >= _FIRST_WITHOUT_KERNELS and not image.startswith("nvcr.io/"):
            what = (
                f"TensorFlow 2.21 has no kernels for {pool.accelerator} (compute capability "
                f"{capability})"
            )
            remedy = "use a GPU up to NVIDIA_H200_141GB, or build from nvcr.io/nvidia/tensorflow"
            yield warning("gpu-no-kernels", f"{pool.section}.accelerator", what, remedy)


def build_problems(requirements: ImageRequirements, request: JobRequest) -> Iterator[Problem]:
    """Yield builds of TensorFlow that do not use the accelerators, or install CUDA for nothing."""
    runtime = requirements.runtime
    kinds = {pool.accelerator or "" for pool in request.pools if pool.image is None}
    gpu = next((kind for kind in sorted(kinds) if kind.startswith("NVIDIA")), None)
    installed = [line for line in requirements.installed if line.name in _BUILDS]
    if any(pool.has_tpu for pool in request.pools if pool.image is None) and not runtime.own:
        yield from _tpu_builds(requirements, installed)
    if gpu:
        for location, what, remedy in _gpu_builds(requirements, gpu):
            yield error(_BUILD, location, what, remedy)
    elif runtime.is_plain:
        what = "installs CUDA (gigabytes), which a cluster without GPUs does not need"
        for line in filter(_has_cuda, installed):
            yield warning(_BUILD, line.location, what, "write tensorflow-cpu")


def _tpu_builds(
    requirements: ImageRequirements, installed: Iterable[RequirementLine]
) -> Iterator[Problem]:
    """Yield builds that do not use TPUs, and a libtpu that tensorflow-tpu was not released with.

    The last tensorflow-tpu is 2.20.0, and it accepts every later libtpu.
    """
    for line in installed:
        what = f"{line.name} does not compute on TPUs, for which the last TensorFlow is 2.20"
        yield error(_BUILD, line.location, what, f"write {' and '.join(_FOR_TPUS)}")
    for line in requirements.installed:
        if line.name == "tensorflow-tpu" and "libtpu" not in requirements.names:
            what = "tensorflow-tpu is installed with the newest libtpu, and not with its own"
            yield warning(_BUILD, line.location, what, f"add {_FOR_TPUS[1]}")


def _gpu_builds(requirements: ImageRequirements, gpu: str) -> Iterator[tuple[str, str, str]]:
    """Yield location, message and remedy of builds of TensorFlow that do not use the GPUs."""
    runtime, own = requirements.runtime, requirements.runtime.own
    no_cuda = f"has no CUDA, so it does not compute on {gpu}"
    yield from _required_builds(requirements, gpu, no_cuda)
    if runtime.is_plain and requirements.names.isdisjoint({*_BUILDS, "tf-nightly"}):
        for line in [each for each in requirements.installed if each.name in _REQUIRING][:1]:
            what = f"{line.name} requires tensorflow, which {no_cuda}"
            yield line.location, what, "add tensorflow[and-cuda]"
    tag = tensorflow_tag(runtime.base)
    if tag and "gpu" not in tag and not _installs_cuda(requirements):
        base, packages = DEFAULT_BASE, f", and {_AND_CUDA} in the requirements"
        version = re.match(r"(\d+)\.(\d+)", tag)
        if version and not _is_at_least(version, _FIRST_WITH_OLD_CUDNN):
            base, packages = f"tensorflow/tensorflow:{tag}-gpu", ""
        what = f"{runtime.base} computes on CPUs only, and the machines have {gpu}"
        location = own.path if own else "image.base"
        yield location, what, f"{runtime.set_base(base)}{packages}"


def _required_builds(
    requirements: ImageRequirements, gpu: str, no_cuda: str
) -> Iterator[tuple[str, str, str]]:
    is_built = requirements.runtime.is_plain
    for line in requirements.lines:
        if line.name not in _BUILDS or not line.requirement:
            continue
        specifier = line.requirement.specifier
        if line.is_constraint:
            if _has_cuda(line):
                what = "the image gets tensorflow[and-cuda], and pip refuses extras in constraints"
                yield line.location, what, f"{_AND_CUDA}{specifier} in {requirements.file}"
        elif is_built and not _has_cuda(line):
            what = f"{line.name} {no_cuda}; it is hash-pinned, so it is not replaced"
            yield line.location, what, f"{_AND_CUDA} with its hashes, or remove the hashes"
        elif is_built and (specifier & f">={_FIRST_WITH_CUDA}").is_unsatisfiable():
            what = f"tensorflow{specifier} does not compute on {gpu}: pip installs CUDA with"
            remedy = "use a later version, or image.base: tensorflow/tensorflow:VERSION-gpu"
            yield line.location, f"{what} TensorFlow {_FIRST_WITH_CUDA} and later", remedy


def _installs_cuda(requirements: ImageRequirements) -> bool:
    """Return whether the requirements or the user's Dockerfile install TensorFlow with CUDA."""
    own = requirements.runtime.own
    is_in_dockerfile = own is not None and "[and-cuda]" in own.text
    return is_in_dockerfile or any(map(_has_cuda, requirements.installed))


def _has_cuda(line: RequirementLine) -> bool:
    return (
        line.name in _BUILDS
        and line.requirement is not None
        and "and-cuda" in line.requirement.extras
    )


def idle_stop(job: Job, *, is_bundled: bool) -> Iterator[Problem]:
    """Yield why `stop_if` has no effect; `is_bundled` is for the bundled trainer."""
    if job.stop_if is None:
        return
    cluster = job.cluster
    if not any(pool and pool.machine.task_gpus for pool in (cluster.chief, cluster.workers)):
        what = "has no effect: the chief and the workers have no GPUs whose use could be measured"
        yield warning("stop-if-no-gpus", "stop_if", what, "remove it, or add GPUs")
    servers = cluster.parameter_servers
    has_servers = servers is not None and servers.count > 0
    if has_servers if is_bundled else not job.is_script:
        program = "with parameter servers" if is_bundled else "in a program of your own"
        what = f"has no effect {program}: the trainer stops jobs whose workers train in step"
        remedy = "remove it, or run the bundled trainer or a fit script ('script:')"
        yield warning("stop-if-ignored", "stop_if", what, remedy)
