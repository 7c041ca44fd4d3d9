"""What `submit` is asked to launch, as plain frozen data, and what keeps it from being launched."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch import records
from distlaunch.errors import JobFileError
from distlaunch.job import vertex

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.job.model import Job


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be launched.

    Parameters
    ----------
    folder
        The project's folder.
    job
        The job, with project and region.
    job_dir
        The ``gs://…`` folder that was asked for, None for a new one in the job's bucket.
    endpoint
        Who answers in Google's place, if anyone does.
    """

    folder: Path
    job: Job
    job_dir: str | None = None
    endpoint: str | None = None

    @property
    def own_dir(self) -> str | None:
        """The folder for the job's output that was asked for, in whatever way.

        A file that `render` wrote names the folder of all jobs of this name: none of its own.
        """
        said = vertex.output_directory(self.job)
        return self.job_dir or (said if said != f"{self.job.bucket}/{self.job.name}" else None)

    def job_dir_of(self, launch_id: str) -> str | None:
        """Return where a launch writes, None where nothing says so."""
        job = self.job
        return self.own_dir or (f"{job.bucket}/{job.name}/{launch_id}" if job.bucket else None)

    def request(self, launch_id: str, image: str | None) -> dict[str, Any]:
        """Return the body of the call that makes the job."""
        return vertex.request(
            self.job,
            image=image,
            labels={records.LAUNCH_LABEL: launch_id},
            job_dir=self.job_dir_of(launch_id),
        )

    def content(self, image: str | None) -> str:
        """Return a hash of what is launched and where, the same for each launch of the same."""
        job = self.job
        said = vertex.request(job, image=image, labels={}, job_dir=self.own_dir or job.bucket)
        return fingerprint([said, job.project, job.region, self.endpoint])


def problems(order: Order) -> list[str]:
    """Return what keeps a job from being launched at all, a line each with the remedy."""
    from distlaunch.job.formats import placeholders

    job = order.job
    found = list(placeholders(job, of_account=not _is_emulator(order.endpoint)))
    if job.project is None:
        found.append(
            "no project: say project: in distlaunch.yaml, --project ID, "
            "or 'gcloud config set project ID'"
        )
    if job.region is None:
        found.append("no region: say region: in distlaunch.yaml, as us-central1, or --region R")
    if vertex.needs_image(job):
        if job.image.repository is None:
            found.append(
                "no image: say image.repository in distlaunch.yaml, as "
                "us-central1-docker.pkg.dev/PROJECT/training/NAME, or --image URI for one that is "
                "there"
            )
        if order.job_dir_of("ID") is None:
            found.append(
                "no place for the job's output: say bucket: in distlaunch.yaml, as "
                "gs://my-bucket, or --job-dir gs://BUCKET/FOLDER"
            )
    return found


def _is_emulator(endpoint: str | None) -> bool:
    """Whether somebody answers in Google's place who knows of no accounts."""
    return endpoint is not None and endpoint.startswith("http://")


def refuse_what_cannot_be(order: Order) -> None:
    """See that a job can be launched at all.

    Raises
    ------
    JobFileError
        With all that speaks against it.
    """
    found = problems(order)
    if found:
        raise JobFileError(found)


def fingerprint(value: Any) -> str:
    """Return a hash of plain data, the same wherever it is made."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
