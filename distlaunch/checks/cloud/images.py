"""Images that exist already, as their registries have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.cloud.context import TIMEOUT, not_checked
from distlaunch.checks.problem import error
from distlaunch.checks.project.dockerfile import program_problems
from distlaunch.errors import ImageError
from distlaunch.image.entrypoint import read_config
from distlaunch.image.reference import Reference
from distlaunch.job import reduction_server, vertex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.cloud.context import CloudContext
    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job


def named_images(context: CloudContext) -> list[Reference]:
    """Return the images that the job's pools name, but for that of Google's Reduction Server."""
    pools = [pool for pool in context.request.pools if pool.role != reduction_server.KEY]
    uris = dict.fromkeys(pool.image for pool in pools)
    return [image for uri in uris if (image := _parse(uri))]


def pushed_image(job: Job) -> Reference | None:
    """Return the image that is built for a job, without a tag; None if none is."""
    repository = job.image.repository if vertex.needs_image(job) else None
    return _parse(repository)


def image_problems(context: CloudContext, image: Reference) -> Iterator[Problem]:
    """Yield that an image does not exist, or is for other machines than the job's."""
    from distlaunch.image.registry.client import Registry
    from distlaunch.image.registry.manifests import WrongPlatform
    from distlaunch.image.registry.transport import RetryPolicy

    connect, read = TIMEOUT
    try:
        with Registry(image, policy=RetryPolicy(connect, read, retries=1)) as registry:
            contents = read_config(registry.image().config)
        for uri in {pool.image for pool in context.request.pools if _parse(pool.image) == image}:
            yield from program_problems(context.launch.job, contents, str(image), uri)
    except WrongPlatform as problem:
        if _runs_on_amd64(context, image):
            yield _image_error("image-architecture", image, problem)
    except ImageError as problem:
        if getattr(problem, "status", 0) in (404, 412):  # of a registry: no such image, or no more
            yield _image_error("image-missing", image, problem)
        else:
            yield not_checked(str(image), problem)


def _runs_on_amd64(context: CloudContext, image: Reference) -> bool:
    """Whether a machine with an image is for amd64, or unknown."""
    kinds = [
        context.catalogue.machines.get(pool.machine)
        for pool in context.request.pools
        if _parse(pool.image) == image
    ]
    return any(kind is None or kind.architecture == "amd64" for kind in kinds)


def _parse(text: str | None) -> Reference | None:
    try:
        return Reference.parse(text) if text else None
    except ImageError:
        return None  # another check reports it


def _image_error(code: str, image: Reference, problem: ImageError) -> Problem:
    return error(code, str(image), problem.what, problem.remedy)
