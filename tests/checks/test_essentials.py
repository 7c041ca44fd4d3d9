from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from distlaunch.checks.essentials import placeholders, problems, refuse_what_cannot_be
from distlaunch.errors import JobFileError
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool
from distlaunch.order import Order

REPOSITORY = "us-central1-docker.pkg.dev/mine-1234/training/digits"
WHOLE = Job(
    name="digits",
    cluster=Cluster(Pool(Machine("n1-standard-4"))),
    project="mine-1234",
    region="us-central1",
    bucket="gs://mine",
    image=Image(repository=REPOSITORY),
)
EMULATOR = "http://127.0.0.1:8085"


def codes(job, **order):
    return [problem.code for problem in problems(Order(Path(), job, **order))]


def test_a_job_that_says_all_of_it_has_no_problem():
    assert codes(WHOLE) == []


@pytest.mark.parametrize(
    ("missing", "code"),
    [
        ({"project": None}, "no-project"),
        ({"region": None}, "no-region"),
        ({"bucket": None}, "no-job-dir"),
        ({"image": Image()}, "no-image"),
        ({"project": "my-project"}, "placeholder-project"),
        ({"bucket": "gs://my-bucket/below"}, "placeholder-bucket"),
        ({"image": Image(repository="h/my-project/digits")}, "placeholder-repository"),
    ],
)
def test_what_is_missing_is_told_with_what_mends_it(missing, code):
    job = replace(WHOLE, **missing)
    [problem] = problems(Order(Path(), job))
    assert (problem.code, problem.severity) == (code, "error")
    with pytest.raises(JobFileError) as refusal:
        refuse_what_cannot_be(Order(Path(), job))
    assert refusal.value.lines == (problem.line,)


def test_a_folder_of_its_own_or_an_image_that_is_there_needs_no_bucket_and_no_repository():
    assert codes(replace(WHOLE, bucket=None), job_dir="gs://mine/here") == []
    assert codes(replace(WHOLE, bucket=None, image=Image(uri="x/y:1"))) == []


def test_an_emulator_takes_any_account_but_no_registry_takes_a_placeholder():
    left = replace(WHOLE, project="my-project", bucket="gs://my-bucket")
    assert codes(left, endpoint=EMULATOR) == []
    elsewhere = replace(left, image=Image(repository="h/my-project/digits"))
    assert codes(elsewhere, endpoint=EMULATOR) == ["placeholder-repository"]
    assert [each.where for each in placeholders(elsewhere)] == [
        "project",
        "bucket",
        "image.repository",
    ]
    assert list(placeholders(replace(elsewhere, image=Image(uri="x/y:1")), of_account=False)) == []
