"""A Vertex AI on loopback with jobs of ours, for the commands about jobs."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.emulator import Emulator
from distlaunch.emulator.faults import Faults
from distlaunch.google.client import connect
from distlaunch.google.jobs import Jobs, has_ended
from distlaunch.submit.records import Record, Records

if TYPE_CHECKING:
    from pathlib import Path

PLACE = ("--project", "p", "--region", "us-central1")


class Cloud(Emulator):
    """An emulator that runs processes, and what is launched in it."""

    def __init__(self, folder: Path, faults: str = "") -> None:
        super().__init__(project_dir=folder, faults=Faults(faults))
        self._folder_of_project = folder

    @property
    def options(self) -> tuple[str, ...]:
        """What leads a command to it."""
        return ("--endpoint", self.url, *PLACE)

    def launch(
        self, launch_id: str, program: str, *, name: str = "digits", label: bool = True
    ) -> dict[str, Any]:
        """Make a job of a chief and a worker that run a Python program, and return it."""
        pool = {
            "machineSpec": {"machineType": "n1-standard-4"},
            "replicaCount": "1",
            "containerSpec": {"imageUri": "gcr.io/p/i", "command": ["python", "-c", program]},
        }
        body = {
            "displayName": name,
            "labels": {"distlaunch-launch": launch_id} if label else {"team": "vision"},
            "jobSpec": {"workerPoolSpecs": [pool, pool]},
        }
        if label:
            return self.jobs.create("customJobs", body, may_exist=False).job
        path = "projects/p/locations/us-central1/customJobs"
        return self.jobs.session.call("POST", "aiplatform", path, body=body, region="us-central1")

    def record(self, job: dict[str, Any] | None, launch_id: str, **more: Any) -> Record:
        """Write the record that a submit leaves in the folder."""
        record = Record(
            launch_id=launch_id,
            name="digits",
            project="p",
            region="us-central1",
            collection="customJobs",
            content="",
            request={},
            endpoint=self.url,
            resource=job and job["name"],
            **more,
        )
        Records(self._folder_of_project).write(record)
        return record

    @property
    def jobs(self) -> Jobs:
        return Jobs(connect(self.url), "p", "us-central1")

    def wait(self, job: dict[str, Any]) -> dict[str, Any]:
        """Wait for a job's end, and its error."""
        while not has_ended(job) or (job["state"] == "JOB_STATE_FAILED" and "error" not in job):
            time.sleep(0.05)
            job = self.jobs.get(job["name"])
        return job


def objects(text: str) -> list[Any]:
    """Return the objects of a command's output, one a line."""
    return [json.loads(line) for line in text.splitlines()]
