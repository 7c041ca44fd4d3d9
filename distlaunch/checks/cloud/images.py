"""The images that are there already, as their registries have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.cloud.context import TIMEOUT, unanswered
from distlaunch.checks.problem import error
from distlaunch.errors import ImageError
from distlaunch.image.reference import Reference
from distlaunch.job import reduction_server, vertex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.cloud.context import About
    from distlaunch.checks.problem import Problem


def named(about: About) -> list[Reference]:
    """Return the images that the job's pools name; other names are reported elsewhere.

    Only Vertex AI itself may pull that of the Reduction Server.
    """
    own = [pool for pool in about.asked.pools if pool.role != reduction_server.KEY]
    uris = dict.fromkeys(pool.image for pool in own if pool.image)
    return list(filter(None, map(_read, uris)))


def pushed(about: About) -> Reference | None:
    """Return the repository that the job's own image is pushed to, None where there is none."""
    job = about.order.job
    if not vertex.needs_image(job) or job.image.repository is None:
        return None
    return _read(job.image.repository)


def problems(about: About, image: Reference) -> Iterator[Problem]:
    """Yield that there is no such image, or that it is for other machines than the job's."""
    from distlaunch.image.registry.client import Registry
    from distlaunch.image.registry.errors import RegistryError
    from distlaunch.image.registry.manifests import WrongPlatform
    from distlaunch.image.registry.transport import RetryPolicy

    connect, read = TIMEOUT
    try:
        with Registry(image, policy=RetryPolicy(connect, read, retries=1)) as registry:
            registry.image()
    except WrongPlatform as problem:
        if _is_for_amd64(about, image):
            yield _told("image-architecture", image, problem)
    except RegistryError as problem:
        is_missing = problem.status == 404
        yield _told("image-missing", image, problem) if is_missing else _unknown(image, problem)
    except ImageError as problem:
        yield _unknown(image, problem)


def _is_for_amd64(about: About, image: Reference) -> bool:
    """Whether a machine that runs an image is of the kind that most are."""
    kinds = [
        about.catalogue.machines.get(pool.machine)
        for pool in about.asked.pools
        if pool.image and _read(pool.image) == image
    ]
    return any(kind is None or kind.architecture == "amd64" for kind in kinds)


def _read(text: str) -> Reference | None:
    try:
        return Reference.parse(text)
    except ImageError:
        return None


def _told(code: str, image: Reference, problem: ImageError) -> Problem:
    what, _, remedy = str(problem).rpartition("; ")
    return error(code, str(image), what, remedy)


def _unknown(image: Reference, problem: ImageError) -> Problem:
    return unanswered(str(image), str(problem))
