"""What a submit will do: the job, its image or its code, and the files that are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.job import vertex
from distlaunch.job.launch import new_launch_id

if TYPE_CHECKING:
    from distlaunch.engines.code_files import CodeFiles
    from distlaunch.image import ImagePlan
    from distlaunch.job.launch import LaunchRequest

PENDING_DIGEST = "<digest known after the push>"


@dataclass(frozen=True, slots=True)
class SubmitPlan:
    """What a submit will do."""

    launch: LaunchRequest
    launch_id: str  # unless an interrupted launch is resumed
    image: ImagePlan | None  # None if every pool names its own, and for other engines
    code: CodeFiles | None = None  # of an engine without images

    @property
    def files(self) -> list[tuple[str, int]]:
        """The paths and sizes of the project's files that are sent."""
        if self.code:
            return self.code.sizes
        context = self.image.context if self.image else None
        return [(file.path, file.size) for file in context.files] if context else []

    @property
    def image_uri(self) -> str | None:
        """The URI of the image that is built, with its digest if that is known."""
        if self.image is None:
            return None
        return self.image.uri or f"{self.image.reference.name}@{PENDING_DIGEST}"


def plan_submit(launch: LaunchRequest, image: ImagePlan | None = None) -> SubmitPlan:
    """Return what a submit will do; JobFileError is raised if required fields are missing."""
    from distlaunch.checks.required_fields import raise_if_incomplete

    raise_if_incomplete(launch)  # also where --no-check leaves the checks out
    if launch.job.is_on_slurm:
        from distlaunch.image.code import read_code

        code = read_code(launch.job, launch.folder)
        return SubmitPlan(launch, new_launch_id(launch.job.name), None, code)
    if image is None and vertex.needs_image(launch.job):
        from distlaunch.image import plan_image

        image = plan_image(launch.job, launch.folder)
    return SubmitPlan(launch, new_launch_id(launch.job.name), image)
