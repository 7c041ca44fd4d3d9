"""An image's environment: everything in its Dockerfile but the code, and its hash."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from distlaunch.image.dockerfile import Dockerfile, Instruction, Stage
from distlaunch.image.pip_secrets import FOLDER, VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from distlaunch.image.context import Context, ContextFile

STAGE = "environment"

_TAG_DIGITS = 32  # of a hash in a tag
_VERSION = 2  # raised when the same Dockerfile gives another image than before
_URL = ("http://", "https://", "git://", "git@")


@dataclass(frozen=True, slots=True)
class Environment:
    """A Dockerfile up to its stage ``environment``."""

    head: str  # the lines before the first stage
    stages: tuple[Stage, ...]  # with base images by digest
    files: tuple[ContextFile, ...]  # the project's files that they copy

    @property
    def text(self) -> str:
        """The Dockerfile of the environment alone."""
        return self.head + "".join(stage.text for stage in self.stages)

    @property
    def bases(self) -> tuple[str, ...]:
        """The base images."""
        return Dockerfile(self.head, self.stages, needs_buildkit=False).bases

    @property
    def tag(self) -> str:
        """``env-`` and a hash of the instructions and the files, without comments."""
        stages = [[(each.word, each.rest) for each in _of(stage)] for stage in self.stages]
        files = [(each.path, each.mode, each.digest, each.target) for each in self.files]
        return f"env-{hashed([_VERSION, self.head, stages, files])}"

    @property
    def has_pip_step(self) -> bool:
        """Whether a step installs packages with pip."""
        return any(is_pip(each) for stage in self.stages for each in stage.instructions)

    def with_secrets(self, names: Iterable[str]) -> Environment:
        """Return the environment with BuildKit secrets mounted into its pip steps."""
        mounts = " ".join(f"--mount=type=secret,id={name},mode=0444" for name in names)
        stages = []
        for stage in self.stages:
            edited = [_with_mounts(i, mounts) if is_pip(i) else i for i in stage.instructions]
            stages.append(replace(stage, instructions=tuple(edited)))
        return replace(self, stages=tuple(stages))


def environment_of(dockerfile: Dockerfile, context: Context) -> Environment | None:
    """Return the environment of a Dockerfile, None if it has no stage of this name."""
    names = [stage.name for stage in dockerfile.stages]
    if STAGE not in names:
        return None
    stages = dockerfile.stages[: names.index(STAGE) + 1]
    sources = [source for stage in stages for each in _of(stage) for source in each.sources]
    return Environment(dockerfile.head, stages, tuple(_matching(context.files, sources)))


def pin_bases(dockerfile: Dockerfile, digests: Mapping[str, str]) -> Dockerfile:
    """Return a Dockerfile with its base images by digest."""
    stages = tuple(_pin_base(stage, digests) for stage in dockerfile.stages)
    return replace(dockerfile, stages=stages)


def is_pip(instruction: Instruction) -> bool:
    """Whether an instruction has pip install something."""
    words = instruction.array or tuple(instruction.rest.split())
    return instruction.word == "RUN" and "install" in words and any("pip" in w for w in words)


def hashed(data: object) -> str:
    """Return a hash of plain data, short enough for a tag."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:_TAG_DIGITS]


def _pin_base(stage: Stage, digests: Mapping[str, str]) -> Stage:
    if stage.base not in digests:
        return stage
    base = digests[stage.base]
    flags = stage.start.rest.removesuffix(stage.start.arguments)
    rest = f"{flags}{base}" + (f" AS {stage.name}" if stage.name else "")
    return replace(stage, base=base, start=Instruction("FROM", rest, f"FROM {rest}\n"))


def _of(stage: Stage) -> tuple[Instruction, ...]:
    return (stage.start, *(each for each in stage.instructions if each.word))


def _matching(files: Iterable[ContextFile], sources: list[str]) -> Iterable[ContextFile]:
    patterns = [source.removeprefix("./").strip("/") for source in sources]
    for file in files:
        if any(_covers(source, file.path) for source in patterns):
            yield file


def _covers(source: str, path: str) -> bool:
    """Whether a source of COPY takes a file in: as itself, by a pattern, or with its folder."""
    if source in ("", "."):
        return True
    if source.startswith(_URL):
        return False
    depth = source.count("/") + 1
    head = "/".join(path.split("/")[:depth])
    return fnmatchcase(head, source)


def _with_mounts(instruction: Instruction, mounts: str) -> Instruction:
    flags = instruction.rest.removesuffix(instruction.arguments)
    command = shlex.join(instruction.array) if instruction.array else instruction.arguments
    rest = f"{mounts} {flags}set -a; . {FOLDER}/{VARIABLES}; set +a; {command}"
    return replace(instruction, rest=rest, text=f"RUN {rest}\n")
