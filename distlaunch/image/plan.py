"""What there is to do until a registry has a job's image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.image.context import Context
    from distlaunch.image.reference import Reference
    from distlaunch.job.model import Job

# use: an image that the job names; nothing: the registry has it; append: the code alone is sent;
# engine: a container engine builds the environment first; wheels: pip makes it, without an engine.
Way = Literal["use", "nothing", "append", "engine", "wheels"]


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
    context
        The project's files in the image, None where they are of no concern.
    """

    way: Way
    reason: str
    reference: Reference
    digest: str | None = None
    context: Context | None = None

    @property
    def repository(self) -> str:
        """Where the image is, or will be: ``HOST/PATH``."""
        return self.reference.name

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


def plan(job: Job, folder: Path) -> ImagePlan:
    """Find out what there is to do; the registry is asked, an engine never.

    Raises
    ------
    ImageError
        If the job says too little, its files cannot go into an image, or the registry refuses.
    """
    raise NotImplementedError
