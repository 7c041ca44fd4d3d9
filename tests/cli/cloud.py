"""A Vertex AI on loopback with jobs, for the commands about jobs."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from failing_calls import FailingEmulator

from distlaunch.engines.vertex.client import connect
from distlaunch.engines.vertex.jobs import Jobs, state
from distlaunch.submit.records import Record, Records

if TYPE_CHECKING:
    from pathlib import Path

LABEL = "distlaunch-launch"
LOCATION = ("--project", "p", "--region", "us-central1")
# Writes what the trainer's chief does.
TRAINER = """
import json, os, sys
from pathlib import Path
folder = Path(os.environ["AIP_MODEL_DIR"]).parent
loss = float(sys.argv[1])
epochs = [{"epoch": n, "step": n, "logs": {"loss": loss / n, "val_loss": loss}} for n in (1, 2)]
(folder / "model").mkdir(parents=True, exist_ok=True)
(folder / "model/model.keras").write_bytes(b"model" * 1000)
(folder / "summary.json").write_text(json.dumps({"epochs": epochs, "tasks": ["chief"], "steps": 2}))
sys.exit(int(sys.argv[2]))
"""


def write_project(folder: Path, job_file: str, program: str, name: str = "trainer.py") -> Path:
    """Write a job file and its program into a new folder digits, and return that."""
    project = folder / "digits"
    project.mkdir()
    (project / "distlaunch.yaml").write_text(job_file)
    (project / name).write_text(program)
    return project


def new_record(launch_id: str = "digits-1", **more: Any) -> Record:
    """Return the record of a launch of digits in project p."""
    fields = {"project": "p", "region": "us-central1", "collection": "customJobs", "content": ""}
    return Record(**{"launch_id": launch_id, "name": "digits", "request": {}, **fields, **more})


def number_of(job: dict[str, Any]) -> str:
    """Return Google's number of a job."""
    return job["name"].rpartition("/")[2]


def objects(text: str) -> list[Any]:
    """Return the JSON objects of lines."""
    return [json.loads(line) for line in text.splitlines()]


class Cloud(FailingEmulator):
    """An emulator that runs processes, and the jobs that are launched in it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(project_dir=folder, **options)

    @property
    def address(self) -> str:
        """Its URL without the token."""
        return self.url.rpartition("/")[0]

    def options(self, project: str = "p") -> tuple[str, ...]:
        """Return the options of a command for a project there."""
        return ("--endpoint", self.url, "--project", project, "--region", "us-central1")

    def jobs(self, project: str = "p") -> Jobs:
        return Jobs(connect(self.url), project, "us-central1")

    def launch(
        self,
        program: str,
        launch_id: str = "",
        *args: list[str],
        project: str = "p",
        name: str = "digits",
        job_dir: str = "",
        timeout: int = 0,
    ) -> dict[str, Any]:
        """Create a job whose pools run a Python program with some args; a chief and a worker."""
        container = {"imageUri": "gcr.io/p/i", "command": ["python", "-c", program]}
        pools = [
            {
                "machineSpec": {"machineType": "n1-standard-4"},
                "replicaCount": "1",
                "containerSpec": {**container, "args": words},
            }
            for words in args or ([], [])
        ]
        more = {"baseOutputDirectory": {"outputUriPrefix": job_dir}} if job_dir else {}
        more |= {"scheduling": {"timeout": f"{timeout}s"}} if timeout else {}
        body = {
            "displayName": name,
            "labels": {LABEL: launch_id} if launch_id else {},
            "jobSpec": {"workerPoolSpecs": pools, **more},
        }
        session, path = connect(self.url), f"projects/{project}/locations/us-central1/customJobs"
        return session.call("POST", "aiplatform", path, body=body, region="us-central1")

    def record(self, folder: Path, launch_id: str, job: dict[str, Any] | None, **more: Any) -> None:
        """Write the record that a submit leaves in a folder."""
        resource = job and job["name"]
        Records(folder).write(new_record(launch_id, endpoint=self.url, resource=resource, **more))

    def wait(self, job: dict[str, Any]) -> dict[str, Any]:
        """Wait for a job's end, and its error."""
        jobs = self.jobs()
        while not state(job).is_terminal or (
            job["state"] == "JOB_STATE_FAILED" and "error" not in job
        ):
            time.sleep(0.05)
            job = jobs.get(job["name"])
        return job
