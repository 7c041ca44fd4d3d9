"""A job, and its cloud checks with the fake Google."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from distlaunch.checks import cloud
from distlaunch.engines.vertex.client import connect
from distlaunch.job import machine_catalogue
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool
from distlaunch.job.vertex.view import job_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.checks.problem import Problem

T4 = Pool(Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1))

JOB = Job(
    name="digits",
    project="demo-project",
    region="us-central1",
    bucket="gs://demo-bucket",
    image=Image("us-central1-docker.pkg.dev/demo-project/training/digits"),
    service_account="trainer@demo-project.iam.gserviceaccount.com",
    cluster=Cluster(T4, Pool(T4.machine, 3)),
)


@pytest.fixture
def check(tmp_path, google) -> Callable[..., list[Problem]]:
    """Return a function that checks a job with a fake Google of some knobs."""

    def run(fields=None, *, options=None, **knobs) -> list[Problem]:
        google(**knobs)
        order = LaunchRequest(tmp_path, replace(JOB, **(fields or {})))
        session = connect(project=order.job.project, **(options or {}))
        catalogue = machine_catalogue.load(None)
        return cloud.problems(order, job_request(order), session, catalogue)

    return run


@pytest.fixture
def codes(check) -> Callable[..., list[str]]:
    """Return the codes of a job's problems with some of Google's responses replaced."""

    def run(answers, **fields) -> list[str]:
        return [problem.code for problem in check(fields, answers=answers)]

    return run
