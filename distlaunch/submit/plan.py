"""What a submit will do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.job import vertex
from distlaunch.job.launch import new_launch_id

if TYPE_CHECKING:
    from distlaunch.image import ImagePlan
    from distlaunch.job.launch import LaunchRequest

PENDING_DIGEST = "<digest known after the push>"


@dataclass(frozen=True, slots=True)
class SubmitPlan:
    """What a submit will do."""

    launch: LaunchRequest
    launch_id: str  # unless an interrupted launch is resumed
    image: ImagePlan | None  # None if every pool names its own

    @property
    def collection(self) -> vertex.Collection:
        """The collection of Google's API."""
        return vertex.collection(self.launch.job)

    @property
    def request(self) -> dict[str, Any]:
        """The request, with the image's digest if that is known."""
        uri = None
        if self.image is not None:
            uri = self.image.uri or f"{self.image.reference.name}@{PENDING_DIGEST}"
        return self.launch.request(self.launch_id, uri)


def plan_submit(launch: LaunchRequest, image: ImagePlan | None = None) -> SubmitPlan:
    """Return what a submit will do; JobFileError is raised if required fields are missing."""
    from distlaunch.checks.required_fields import raise_if_incomplete

    raise_if_incomplete(launch)
    if image is None and vertex.needs_image(launch.job):
        from distlaunch.image import plan_image

        image = plan_image(launch.job, launch.folder)
    return SubmitPlan(launch, new_launch_id(launch.job.name), image)
