"""What has to be done until a registry has a job's image."""

from __future__ import annotations

import hashlib
import json
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from distlaunch.background import BackgroundTask
from distlaunch.errors import ImageError
from distlaunch.image.context import Context, ContextFile, read_context
from distlaunch.image.dockerfile_parser import Dockerfile, Instruction, below, read_dockerfile
from distlaunch.image.entrypoint import read_contents
from distlaunch.image.pip_secrets import FOLDER, VARIABLES
from distlaunch.image.recipe import Recipe, read_recipe
from distlaunch.image.reference import Reference
from distlaunch.image.registry import RegistryUnreachable
from distlaunch.image.registry.manifests import ImageSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from distlaunch.job.model import Job

_T = TypeVar("_T")
_TAG_DIGITS = 32  # of a hash in a tag
_VERSION = 2  # raised when the same Dockerfile gives another image than before


class BuildStrategy(str, Enum):
    """How a job gets its image; the values are those of ``check --json``."""

    EXISTING = "use"  # the job names an image
    UP_TO_DATE = "nothing"  # the registry has the image
    APPEND = "append"  # the registry has the environment: a layer with the code is appended
    DOCKER = "docker"  # Docker builds the environment (or uv without Docker), or all of it
    CLOUD_BUILD = "cloud-build"  # Cloud Build builds the environment, or all of it


@dataclass(frozen=True, slots=True)
class Environment:
    """A Dockerfile without its last stage, which only adds the code."""

    dockerfile: Dockerfile  # with base images by digest
    files: tuple[ContextFile, ...]  # that it copies
    code: ImageSettings  # of the last stage, which copies the code to `workdir`

    @property
    def project_files(self) -> tuple[ContextFile, ...]:
        """The files that are in the project's folder."""
        return tuple(each for each in self.files if each.content is None and not each.is_folder)

    @property
    def tag(self) -> str:
        """``env-`` and a hash of the instructions and the files."""
        stages = [
            [(each.word, each.rest) for each in (stage.start, *stage.instructions)]
            for stage in self.dockerfile.stages
        ]
        files = [(each.path, each.mode, each.digest, each.target) for each in self.files]
        return f"env-{_hashed([_VERSION, self.dockerfile.head, stages, files])}"


@dataclass(frozen=True, slots=True)
class BuildInputs:
    """What an image is built from."""

    folder: Path
    recipe: Recipe
    dockerfile: Dockerfile  # with base images by digest if the image is to be pushed
    context: Context
    environment: Environment | None = None  # None for a Dockerfile that is built as a whole

    @property
    def files(self) -> tuple[ContextFile, ...]:
        """The files and folders from which Docker builds the whole image."""
        return (*self.context.entries, *([self.recipe.wheel] if self.recipe.wheel else []))

    @property
    def tag(self) -> str:
        """A hash of the inputs."""
        instructions: object = self.dockerfile.text
        if self.environment:
            instructions = [self.environment.tag, asdict(self.environment.code)]
        elif wheel := self.recipe.wheel:
            instructions = [self.dockerfile.text, wheel.digest]
        return _hashed([instructions, self.context.digest])


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """How a job's image is built."""

    strategy: BuildStrategy
    reason: str  # of the strategy, for users
    reference: Reference  # by its future tag, or as the job names it
    digest: str | None = None  # None if it is known after the push only
    environment_digest: str | None = None  # of the environment, if the registry has it
    inputs: BuildInputs | None = None  # None if the job names an image

    @property
    def context(self) -> Context | None:
        """The project's files in the image, None if the job names an image."""
        return self.inputs.context if self.inputs else None

    @property
    def uri(self) -> str | None:
        """The image URI of the job request, None if it is known after the push only."""
        if self.strategy == BuildStrategy.EXISTING:
            return str(self.reference)
        return str(self.reference.with_digest(self.digest)) if self.digest else None


def plan_image(
    job: Job,
    folder: Path,
    *,
    push: bool = True,
    timeout: float | None = None,
    context: Context | None = None,
) -> ImagePlan:
    """Compare a job's image with what the registry has.

    Parameters
    ----------
    push
        If not, no registry is contacted, and `image.repository` is not required.
    timeout
        Seconds for the look-ups of the bases, and for those of the image; None for no limit.
    context
        The project's files in the image, read by default.

    Raises
    ------
    ImageError
        If a setting is missing, a file must not go into an image, or a registry refuses or does
        not respond.
    """
    image = job.image
    if image.uri:
        reference = Reference.parse(image.uri)
        return ImagePlan(BuildStrategy.EXISTING, "the job names it", reference, reference.digest)
    if not push:
        inputs = _read_inputs(job, folder, context=context)
        repository = Reference.parse(image.repository or f"distlaunch/{job.name.lower()}")
        reference = repository.with_tag(inputs.tag)
        return ImagePlan(BuildStrategy.DOCKER, "nothing is pushed", reference, inputs=inputs)
    if image.repository is None:
        raise ImageError(
            "no image repository set: add image.repository to distlaunch.yaml, e.g. "
            "us-central1-docker.pkg.dev/PROJECT/training/NAME"
        )
    repository = Reference.parse(image.repository)

    def pin(dockerfile: Dockerfile) -> Dockerfile:
        names = " and ".join(dockerfile.bases)
        try:
            bases = _within(timeout, names, lambda: _look_up_bases(dockerfile.bases))
        except RegistryUnreachable as problem:
            problem.is_of_base = True
            raise
        return pin_bases(dockerfile, bases)

    inputs = _read_inputs(job, folder, pin)
    in_cloud = image.builder == "cloud-build"
    full_build = BuildStrategy.CLOUD_BUILD if in_cloud else BuildStrategy.DOCKER
    compare = partial(_compare_with_registry, repository, inputs, full_build)
    try:
        return _within(timeout, repository.name, compare)
    except RegistryUnreachable as problem:
        problem.context = inputs.context
        raise


def _within(timeout: float | None, what: str, look_up: Callable[[], _T]) -> _T:
    """Return the result of a look-up; RegistryUnreachable is raised after `timeout` seconds."""
    try:
        return BackgroundTask(look_up).result(timeout)
    except TimeoutError:
        text = f"no response about {what} within {timeout:g} s"
        raise RegistryUnreachable(text) from None


def _read_inputs(
    job: Job,
    folder: Path,
    pin: Callable[[Dockerfile], Dockerfile] = lambda dockerfile: dockerfile,
    context: Context | None = None,
) -> BuildInputs:
    """Read what an image is built from; base images are looked up while files are hashed."""
    recipe = read_recipe(job, folder)
    target = job.image.target
    dockerfile = read_dockerfile(recipe.dockerfile, job.image.build_args, target)
    names = [stage.name for stage in dockerfile.stages if stage.name]
    if target and (not names or dockerfile.stages[-1].name != target.lower()):
        remedy = f"it has {', '.join(names)}" if names else "name one with FROM IMAGE AS NAME"
        what = f"the Dockerfile has no stage {target!r}"
        raise ImageError(what, where="image.target", remedy=remedy)
    # Hashing takes the CPU, and the look-up of the bases waits for a network.
    reading = BackgroundTask(lambda: context or read_context(folder, recipe.ignore))
    try:
        dockerfile = pin(dockerfile)
    except RegistryUnreachable as problem:
        with suppress(ImageError):
            problem.context = reading.result()
        raise
    inputs = BuildInputs(folder, recipe, dockerfile, reading.result())
    if recipe.own_dockerfile:
        return inputs
    return replace(inputs, environment=split_environment(dockerfile, inputs.files))


def split_environment(dockerfile: Dockerfile, files: Iterable[ContextFile]) -> Environment | None:
    """Return what comes before the last stage, None if that one does more than add the code.

    `files` are those that can be copied.
    """
    if len(dockerfile.stages) < 2:
        return None
    *stages, last = dockerfile.stages
    contents = read_contents(dockerfile, ())
    code = ImageSettings(contents.entrypoint or (), workdir=contents.workdir)
    steps = sorted((each.word, each.flags, each.words) for each in last.instructions)
    adds_code = [("COPY", "", (".", ".")), ("ENTRYPOINT", "", code.entrypoint)]
    has_folder = (code.workdir or "/") != "/"
    if not (last.base.lower() == stages[-1].name and steps == adds_code and has_folder):
        return None
    sources = [s for stage in stages for each in stage.instructions for s in each.sources]
    copied = tuple(f for f in files if any(below(s, f.path) is not None for s in sources))
    return Environment(replace(dockerfile, stages=tuple(stages)), copied, code)


def pin_bases(dockerfile: Dockerfile, digests: Mapping[str, str]) -> Dockerfile:
    """Return a Dockerfile with its base images by digest."""
    stages = list(dockerfile.stages)
    for index, stage in enumerate(stages):
        if base := digests.get(stage.base):
            name = f"{base} AS {stage.name}" if stage.name else base
            text = f"FROM {stage.start.flags}{name}\n"
            start = replace(stage.start, arguments=name, text=text)
            stages[index] = replace(stage, base=base, start=start)
    return replace(dockerfile, stages=tuple(stages))


def with_secrets(dockerfile: Dockerfile, names: Iterable[str]) -> Dockerfile:
    """Return a Dockerfile with BuildKit secrets mounted into its pip steps."""
    mounts = " ".join(f"--mount=type=secret,id={name},mode=0444" for name in names)
    stages = [
        replace(stage, instructions=tuple(_with_mounts(i, mounts) for i in stage.instructions))
        for stage in dockerfile.stages
    ]
    return replace(dockerfile, stages=tuple(stages))


def _look_up_bases(bases: Iterable[str]) -> Mapping[str, str]:
    """Return each base image by its digest."""
    pinned = {}
    for base in bases:
        reference = Reference.parse(base)
        digest = reference.digest or _look_up_digests(reference)[0]
        if digest is None:
            raise ImageError(
                f"base image {base} does not exist",
                remedy="check image.base in distlaunch.yaml, or FROM in the Dockerfile",
            )
        pinned[base] = str(reference.with_digest(digest))
    return pinned


def _compare_with_registry(
    repository: Reference, inputs: BuildInputs, full_build: BuildStrategy
) -> ImagePlan:
    reference = repository.with_tag(inputs.tag)
    tags = [inputs.tag, *([inputs.environment.tag] if inputs.environment else [])]
    digest, *rest = _look_up_digests(repository, *tags)
    environment = rest[0] if rest else None
    if digest and (environment or inputs.environment is None):
        strategy, reason = BuildStrategy.UP_TO_DATE, "the registry has this image"
    elif environment:
        strategy, reason = BuildStrategy.APPEND, "the registry has the environment, not this code"
    else:
        digest, strategy = None, full_build
        reason = (
            "the registry has no environment of this base image and these requirements"
            if inputs.environment
            else "the Dockerfile is not one that the code can be appended to"
        )
    return ImagePlan(strategy, reason, reference, digest, environment, inputs)


def _look_up_digests(repository: Reference, *tags: str) -> list[str | None]:
    """Return the digests of a repository's tags, by default of the reference's own."""
    from distlaunch.image.registry.client import Registry

    with Registry(repository) as registry:
        tasks = [BackgroundTask(partial(registry.digest, tag)) for tag in tags or (None,)]
        return [task.result() for task in tasks]


def _hashed(data: object) -> str:
    """Return a hash of plain data, short enough for a tag."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:_TAG_DIGITS]


def _with_mounts(instruction: Instruction, mounts: str) -> Instruction:
    """Return an instruction with secrets if it has pip install something, or else unchanged."""
    words = instruction.words
    if instruction.word != "RUN" or "install" not in words or not any("pip" in w for w in words):
        return instruction
    command = shlex.join(instruction.array) if instruction.array else instruction.arguments
    flags = f"{mounts} {instruction.flags}"
    command = f"set -a; . {FOLDER}/{VARIABLES}; set +a; {command}"
    return replace(instruction, flags=flags, arguments=command, text=f"RUN {flags}{command}\n")
