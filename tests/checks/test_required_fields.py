from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from distlaunch.checks.required_fields import placeholders, problems, raise_if_incomplete
from distlaunch.errors import JobFileError
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool

REPOSITORY = "us-central1-docker.pkg.dev/mine-1234/training/digits"
COMPLETE = Job(
    name="digits",
    cluster=Cluster(Pool(Machine("n1-standard-4"))),
    project="mine-1234",
    region="us-central1",
    bucket="gs://mine",
    image=Image(repository=REPOSITORY),
)
OUTPUT = {"jobSpec": {"baseOutputDirectory": {"outputUriPrefix": "gs://my-bucket/here"}}}
EMULATOR = "http://127.0.0.1:8085"


def summary(job, **request):
    return [(each.code, each.where) for each in problems(LaunchRequest(Path(), job, **request))]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"service_account": "a@my-project.iam.gserviceaccount.com"}, "placeholder-project"),
        ({"vertex": OUTPUT}, "placeholder-bucket"),
        ({"image": Image(repository="eu-docker.pkg.dev/x.com/mine/training")}, "repository-form"),
        ({"image": Image(uri="eu-docker.pkg.dev/mine-1234/training:1")}, "repository-form"),
    ],
)
def test_an_incomplete_job_is_refused(fields, code):
    request = LaunchRequest(Path(), replace(COMPLETE, **fields))
    [problem] = problems(request)
    assert (problem.code, problem.severity) == (code, "error")
    with pytest.raises(JobFileError) as refusal:
        raise_if_incomplete(request)
    assert refusal.value.lines == (problem.line,)


@pytest.mark.parametrize(
    "image",
    [
        f"{REPOSITORY}/of/many/parts",
        "us-docker.pkg.dev/example.com/mine/training/digits",
        "docker.io/me/digits",
        "localhost:5000/digits",
    ],
)
def test_a_complete_job_has_no_problem(image):
    assert summary(replace(COMPLETE, image=Image(repository=image))) == []
    uri = Image(uri=f"{image}:1@sha256:{'0' * 64}")
    assert summary(replace(COMPLETE, image=uri, bucket=None)) == []
    assert summary(replace(COMPLETE, bucket=None), job_dir="gs://my-bucket-2/here") == []
    assert summary(replace(COMPLETE, image=Image(uri="gcr.io/deeplearning/tf:1"))) == []


def test_an_emulator_accepts_placeholders_of_an_account_but_not_of_an_image():
    account = "trainer@my-project.iam.gserviceaccount.com"
    names = {"project": "my-project", "bucket": "gs://my-bucket", "service_account": account}
    job = replace(COMPLETE, **names)
    assert summary(job, endpoint=EMULATOR) == []
    job_dir = "gs://my-bucket/digits"
    assert summary(COMPLETE, job_dir=job_dir, endpoint=EMULATOR) == []
    assert summary(COMPLETE, job_dir=job_dir) == [("placeholder-bucket", "--job-dir")]
    job = replace(job, image=Image(repository="h/my-project/digits"))
    image = ("placeholder-repository", "image.repository")
    assert summary(job, endpoint=EMULATOR) == [image]
    [problem] = problems(LaunchRequest(Path(), job, endpoint=EMULATOR))
    assert problem.remedy.startswith("add --image any/image:1: ")
    keys = ["project", "service_account", "bucket", "image.repository"]
    assert [problem.where for problem in placeholders(job)] == keys
