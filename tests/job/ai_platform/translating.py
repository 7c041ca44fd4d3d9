"""AI Platform's files, translated and held to whoever takes them."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from distlaunch.emulator.service.parsing import parse
from distlaunch.emulator.service.rules import custom_job_problems
from distlaunch.emulator.service.tuning_rules import tuning_job_problems
from distlaunch.errors import JobFileError
from distlaunch.job import vertex
from distlaunch.job.ai_platform import read
from distlaunch.job.ai_platform.to_job import Translation, to_job
from distlaunch.job.vertex.messages import check
from distlaunch.job.yaml_document import Document

if TYPE_CHECKING:
    from distlaunch.job.model import (
        Job,
    )

OWN = "us-docker.pkg.dev/p/r/own:1"
IMAGE = "us-docker.pkg.dev/p/r/trainer:1"


def translated(folder, text: str, **given: Any) -> Translation:
    file = read(Document(dedent(text)), folder / "config.yaml")
    return to_job(file, folder=folder, **given)


def request(job: Job) -> dict[str, Any]:
    """Return what is sent of a job, once Google's own message and the emulator have taken it."""
    body = vertex.plain_request(job, image=OWN, labels={}, job_dir=None)
    where = vertex.collection(job)
    check(where, body)
    rules = custom_job_problems if where == "customJobs" else tuning_job_problems
    assert list(rules(parse(where, body), "us-central1")) == []
    return body


def refusals(folder, text: str, **given: Any) -> list[str]:
    with pytest.raises(JobFileError) as refusal:
        translated(folder, text, **given)
    return [line.removeprefix(f"{folder}/config.yaml:") for line in refusal.value.lines]


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
