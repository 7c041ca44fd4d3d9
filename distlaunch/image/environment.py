"""An image's environment: what its Dockerfile says of everything but the code, and its hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from distlaunch.image.dockerfile import Dockerfile, Instruction, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from distlaunch.image.context import Context, ContextFile

STAGE = "environment"

_TAG_DIGITS = 32  # of a hash in a tag
_RECIPE = 1  # raised when the same Dockerfile is built otherwise than before
_URL = ("http://", "https://", "git://", "git@")


@dataclass(frozen=True, slots=True)
class Environment:
    """What stands in a Dockerfile up to its stage ``environment``.

    Parameters
    ----------
    head
        What stands before the stages.
    stages
        The stages, every base image by its digest.
    files
        What of the project they copy.
    """

    head: str
    stages: tuple[Stage, ...]
    files: tuple[ContextFile, ...]

    @property
    def text(self) -> str:
        """A Dockerfile of which the environment is the image."""
        return self.head + "".join(stage.text for stage in self.stages)

    @property
    def bases(self) -> tuple[str, ...]:
        """The images that it begins with."""
        return Dockerfile(self.head, self.stages, needs_buildkit=False).bases

    @property
    def tag(self) -> str:
        """``env-`` and a hash of all that makes the environment; comments make nothing."""
        said = [[(each.word, each.rest) for each in _of(stage)] for stage in self.stages]
        files = [(each.path, each.mode, each.digest, each.target) for each in self.files]
        return f"env-{hashed([_RECIPE, self.head, said, files])}"

    def parted_at_pip(self) -> tuple[str, tuple[str, ...], str] | None:
        """Return the Dockerfile before its step with pip, that step's command, and what follows.

        None where no step is one of pip's.
        """
        last = self.stages[-1]
        steps = [n for n, each in enumerate(last.instructions) if is_pip(each)]
        if not steps:
            return None
        at = steps[-1]
        before = replace(last, instructions=last.instructions[:at])
        after = "".join(each.text for each in last.instructions[at + 1 :])
        text = self.head + "".join(stage.text for stage in (*self.stages[:-1], before))
        return text, _command(last.instructions[at]), after


def environment_of(dockerfile: Dockerfile, context: Context) -> Environment | None:
    """Return the environment of a Dockerfile, None where it has no stage of that name.

    Parameters
    ----------
    dockerfile
        With its bases by digest, see `pin_bases`.
    context
        The project's files.
    """
    names = [stage.name for stage in dockerfile.stages]
    if STAGE not in names:
        return None
    stages = dockerfile.stages[: names.index(STAGE) + 1]
    sources = [source for stage in stages for each in _of(stage) for source in each.sources]
    return Environment(dockerfile.head, stages, tuple(_matching(context.files, sources)))


def pin_bases(dockerfile: Dockerfile, digests: Mapping[str, str]) -> Dockerfile:
    """Return a Dockerfile that begins with the images of given digests.

    Parameters
    ----------
    digests
        By base image, as the Dockerfile says it: what to write instead.
    """
    stages = tuple(_pinned(stage, digests) for stage in dockerfile.stages)
    return replace(dockerfile, stages=stages)


def is_pip(instruction: Instruction) -> bool:
    """Whether an instruction has pip install something."""
    words = instruction.array or tuple(instruction.rest.split())
    return instruction.word == "RUN" and "install" in words and any("pip" in w for w in words)


def hashed(what: object) -> str:
    """Return a hash of plain data, short enough for a tag."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:_TAG_DIGITS]


def _pinned(stage: Stage, digests: Mapping[str, str]) -> Stage:
    if stage.base not in digests:
        return stage
    to = digests[stage.base]
    flags = stage.start.rest.removesuffix(stage.start.arguments)
    rest = f"{flags}{to}" + (f" AS {stage.name}" if stage.name else "")
    return replace(stage, base=to, start=Instruction("FROM", rest, f"FROM {rest}\n"))


def _of(stage: Stage) -> tuple[Instruction, ...]:
    return (stage.start, *(each for each in stage.instructions if each.word))


def _matching(files: Iterable[ContextFile], sources: list[str]) -> Iterable[ContextFile]:
    wanted = [source.removeprefix("./").strip("/") for source in sources]
    for file in files:
        if any(_covers(source, file.path) for source in wanted):
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


def _command(instruction: Instruction) -> tuple[str, ...]:
    return instruction.array or ("/bin/sh", "-c", instruction.arguments)
