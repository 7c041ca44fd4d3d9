"""What `submit` is asked to launch, as plain frozen data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distlaunch.job import vertex
from distlaunch.submit import records

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    config
        The file in one of Google's formats that the job was read from, if it was.
    sets
        ``a.b=c`` for what ``--set`` put into the job.
    said
        Other options of the command line by the key of the job file that they say.
    words
        What stood behind ``--``.
    """

    folder: Path
    job: Job
    job_dir: str | None = None
    endpoint: str | None = None
    config: Path | None = None
    sets: tuple[str, ...] = ()
    said: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    @property
    def is_for_emulator(self) -> bool:
        """Whether somebody answers in Google's place who knows of no accounts."""
        return self.endpoint is not None and self.endpoint.startswith("http://")

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


def fingerprint(value: Any) -> str:
    """Return a hash of plain data, the same wherever it is made."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
