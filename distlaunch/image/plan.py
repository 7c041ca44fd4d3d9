"""What there is to do until a registry has a job's image."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from distlaunch.errors import ImageError
from distlaunch.image.as_before import CACHE
from distlaunch.image.dockerfile import Code, Dockerfile, code_of, read_dockerfile
from distlaunch.image.environment import Environment, environment_of, hashed, pinned
from distlaunch.image.reference import Reference
from distlaunch.render.templates import Recipe, recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from distlaunch.image.as_before import Glance
    from distlaunch.image.context import Context
    from distlaunch.job.model import Job

# use: an image that the job names; nothing: the registry has it; append: the code alone is sent;
# engine: a container engine builds the environment first, or all of it where the Dockerfile is the
# user's own; wheels: pip makes the environment, where there is no engine.
Way = Literal["use", "nothing", "append", "engine", "wheels"]


@dataclass(frozen=True, slots=True)
class Making:
    """What an image is made of.

    Parameters
    ----------
    job
        The job, None where its file need not be read again: nothing of it is needed to append.
    folder
        The project's.
    recipe
        The Dockerfile and the ignore file, as texts.
    dockerfile
        With its base images by digest, where a registry was asked for them.
    context
        The files of the project that go into the image.
    environment, code
        The parts of the Dockerfile, None where it has other ones: an engine builds it as a whole.
    """

    job: Job | None
    folder: Path
    recipe: Recipe
    dockerfile: Dockerfile
    context: Context
    environment: Environment | None = None
    code: Code | None = None

    @property
    def tag(self) -> str:
        """A hash of all that makes the image."""
        how: object = self.dockerfile.text
        if self.environment and self.code:
            how = [self.environment.tag, self.code.root, asdict(self.code.settings)]
        return hashed([how, self.context.digest])


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """How a job's image comes to be.

    Parameters
    ----------
    way
        What has to be done.
    reason
        Why, for people.
    reference
        The image, by the tag that it gets; with way ``use``, as the job names it.
    digest
        ``sha256:…``, None where it is known after the push only.
    environment_digest
        ``sha256:…`` of the environment in the registry, where the code is appended to one.
    making
        What it is made of, None where the job names an image.
    """

    way: Way
    reason: str
    reference: Reference
    digest: str | None = None
    environment_digest: str | None = None
    making: Making | None = None

    @property
    def repository(self) -> str:
        """Where the image is, or will be: ``HOST/PATH``."""
        return self.reference.name

    @property
    def context(self) -> Context | None:
        """The project's files in the image, None where they are of no concern."""
        return self.making.context if self.making else None

    @property
    def uri(self) -> str | None:
        """What a job is submitted with, None where it is known after the push only."""
        if self.way == "use":
            return str(self.reference)
        return str(self.reference.with_digest(self.digest)) if self.digest else None


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that is there.

    Parameters
    ----------
    uri
        ``REPOSITORY@sha256:…``; as the job names it with way ``use``; by its tag where nothing was
        pushed.
    digest
        ``sha256:…`` in the registry, None where nobody has asked for it.
    way
        How it came to be.
    sent
        Bytes sent to the registry.
    """

    uri: str
    digest: str | None
    way: Way
    sent: int


def plan(job: Job, folder: Path, *, push: bool = True) -> ImagePlan:
    """Find out what there is to do; the registry is asked, an engine never.

    Parameters
    ----------
    push
        Whether the image is to be pushed. If not, no registry is asked at all, and the job need
        not say a repository.

    Raises
    ------
    ImageError
        If the job says too little, its files cannot go into an image, or the registry refuses.
    """
    image = job.image
    if image.uri:
        reference = Reference.parse(image.uri)
        return ImagePlan("use", "the job names it", reference, reference.digest)
    if not push:
        making = _making(job, folder, recipe(job, folder), asks=False)
        repository = Reference.parse(image.repository or f"distlaunch/{job.name.lower()}")
        return ImagePlan(
            "engine", "nothing is pushed", repository.with_tag(making.tag), making=making
        )
    if image.repository is None:
        raise ImageError(
            "no image: say image.repository in distlaunch.yaml, as "
            "us-central1-docker.pkg.dev/PROJECT/training/NAME"
        )
    repository = Reference.parse(image.repository)
    return _compared(repository, _making(job, folder, recipe(job, folder), asks=True))


def plan_as_before(glance: Glance) -> ImagePlan | None:
    """Find out what there is to do without reading the job file, where nothing but code changed.

    Returns
    -------
    What `plan` would return, with way ``nothing`` or ``append``; None where it is to be asked.

    Raises
    ------
    ImageError
        As `plan` does.
    """
    found = glance.recall()
    if found is None:
        return None
    making = _making(None, glance.folder, Recipe(found.dockerfile, found.ignore), asks=True)
    made = _compared(Reference.parse(found.repository), making)
    return made if made.way in {"nothing", "append"} else None


def _making(job: Job | None, folder: Path, recipe: Recipe, *, asks: bool) -> Making:
    """Find out what an image is made of; base images are looked up while files are hashed."""
    from distlaunch.image.context import read_context

    dockerfile = read_dockerfile(recipe.dockerfile)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_context, folder, recipe.ignore, cache=folder / CACHE)
        if asks:
            dockerfile = pinned(dockerfile, _digests(dockerfile.bases))
        context = reading.result()
    is_own = recipe.own_dockerfile is not None
    environment = None if is_own else environment_of(dockerfile, context)
    code = code_of(dockerfile) if environment else None
    return Making(job, folder, recipe, dockerfile, context, environment if code else None, code)


def _digests(bases: Iterable[str]) -> Mapping[str, str]:
    """Return what to write instead of each base image: its repository with its digest."""
    found = {}
    for base in bases:
        reference = Reference.parse(base)
        digest = reference.digest or _asked(reference)[0]
        if digest is None:
            raise ImageError(
                f"there is no image {base} to begin with; check image.base in distlaunch.yaml, "
                "or FROM in the Dockerfile"
            )
        found[base] = str(reference.with_digest(digest))
    return found


def _compared(repository: Reference, making: Making) -> ImagePlan:
    """Compare what there is to be with what the registry has."""
    reference = repository.with_tag(making.tag)
    if making.environment is None:
        (digest,) = _asked(repository, making.tag)
        if digest:
            return ImagePlan("nothing", _ALL_THERE, reference, digest, making=making)
        why = "the Dockerfile is not one that the code can be appended to"
        return ImagePlan("engine", why, reference, making=making)
    environment, digest = _asked(repository, making.environment.tag, making.tag)
    if environment and digest:
        return ImagePlan("nothing", _ALL_THERE, reference, digest, environment, making)
    if environment:
        why = "the registry has the environment, and not this code"
        return ImagePlan("append", why, reference, None, environment, making)
    why = "the registry has no environment of this base image and these requirements"
    return ImagePlan("engine", why, reference, making=making)


_ALL_THERE = "the registry has this image"


def _asked(repository: Reference, *tags: str) -> list[str | None]:
    """Ask a registry for images, by default the one that a reference says; all at once."""
    from distlaunch.image.registry.client import Registry

    with Registry(repository) as registry, ThreadPoolExecutor(len(tags) or 1) as pool:
        return list(pool.map(registry.digest, tags or (None,)))
