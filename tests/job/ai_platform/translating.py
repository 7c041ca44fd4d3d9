"""AI Platform's files, translated, and their requests, validated."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from distlaunch.errors import JobFileError
from distlaunch.job import vertex
from distlaunch.job.ai_platform import read
from distlaunch.job.ai_platform.to_job import to_job
from distlaunch.job.load import LoadedJob
from distlaunch.job.model import Cluster, Job, Machine, Pool
from distlaunch.job.names import job_name
from distlaunch.job.vertex.proto import validate_request
from distlaunch.job.yaml_document import Document

OWN = "us-docker.pkg.dev/p/r/own:1"
IMAGE = "us-docker.pkg.dev/p/r/trainer:1"


def translated(
    folder, text: str, base: Job | None = None, name: str | None = None, **options: Any
) -> LoadedJob:
    file = read(Document(dedent(text)), folder / "config.yaml")
    base = base or Job(name or job_name(folder.name), Cluster(Pool(Machine(""))))
    return LoadedJob(*to_job(file, folder=folder, base=base, **options))


def request(job: Job) -> dict[str, Any]:
    """Return the request of a job, validated against Google's message."""
    body = vertex.plain_request(job, image=OWN, labels={}, job_dir=None)
    validate_request(vertex.collection(job), body)
    return body


def refusals(folder, text: str, **given: Any) -> list[str]:
    with pytest.raises(JobFileError) as error:
        translated(folder, text, **given)
    return [line.removeprefix(f"{folder}/config.yaml:") for line in error.value.lines]


def pool(
    machine: str,
    count: int = 1,
    gpus: tuple[int, str] | None = None,
    image: str = OWN,
    *,
    command: list[str] | None = None,
    args: list[str] | None = None,
) -> dict[str, Any]:
    accelerators = {"acceleratorType": gpus[1], "acceleratorCount": gpus[0]} if gpus else {}
    run = {"imageUri": image, "command": command, "args": args}
    return {
        "machineSpec": {"machineType": machine, **accelerators},
        "replicaCount": count,
        "containerSpec": {key: value for key, value in run.items() if value},
    }
