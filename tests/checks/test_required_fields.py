from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from distlaunch.checks.required_fields import placeholders, problems, raise_if_incomplete
from distlaunch.errors import JobFileError
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool
from distlaunch.submit.plan import LaunchRequest

REPOSITORY = "us-central1-docker.pkg.dev/mine-1234/training/digits"
WHOLE = Job(
    name="digits",
    cluster=Cluster(Pool(Machine("n1-standard-4"))),
    project="mine-1234",
    region="us-central1",
    bucket="gs://mine",
    image=Image(repository=REPOSITORY),
)
OUTPUT = {"jobSpec": {"baseOutputDirectory": {"outputUriPrefix": "gs://my-bucket/here"}}}
EMULATOR = "http://127.0.0.1:8085"


def codes(job, **order):
    return [problem.code for problem in problems(LaunchRequest(Path(), job, **order))]


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
        ({"image": Image(uri="h/my-project/digits:1")}, "placeholder-repository"),
        ({"service_account": "a@my-project.iam.gserviceaccount.com"}, "placeholder-project"),
        ({"vertex": OUTPUT}, "placeholder-bucket"),
        ({"image": Image(repository="eu-docker.pkg.dev/mine-1234/training")}, "repository-form"),
        ({"image": Image(repository="eu-docker.pkg.dev/mine-1234")}, "repository-form"),
        ({"image": Image(repository="eu-docker.pkg.dev/x.com/mine/training")}, "repository-form"),
        ({"image": Image(uri="eu-docker.pkg.dev/mine-1234/training:1")}, "repository-form"),
    ],
)
def test_what_is_missing_is_told_with_what_mends_it(missing, code):
    job = replace(WHOLE, **missing)
    [problem] = problems(LaunchRequest(Path(), job))
    assert (problem.code, problem.severity) == (code, "error")
    with pytest.raises(JobFileError) as refusal:
        raise_if_incomplete(LaunchRequest(Path(), job))
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


def test_a_placeholder_in_job_dir_is_told_where_it_was_said():
    [problem] = problems(LaunchRequest(Path(), WHOLE, job_dir="gs://my-bucket/digits/first"))
    assert (problem.code, problem.where) == ("placeholder-bucket", "--job-dir")
    assert codes(WHOLE, job_dir="gs://my-bucket-2/digits") == []
    assert codes(WHOLE, job_dir="gs://my-bucket/digits", endpoint=EMULATOR) == []


def test_an_emulator_takes_any_account():
    theirs = replace(WHOLE, service_account="trainer@my-project.iam.gserviceaccount.com")
    assert codes(theirs, endpoint=EMULATOR) == []


def test_what_an_image_lacks_of_its_name_is_written_out():
    job = replace(WHOLE, image=Image(repository="eu-docker.pkg.dev/example.com/mine"))
    [problem] = problems(LaunchRequest(Path(), job))
    assert problem.remedy == "write eu-docker.pkg.dev/example.com/mine/REPOSITORY/NAME"


@pytest.mark.parametrize(
    "repository",
    [
        REPOSITORY,
        f"{REPOSITORY}/of/many/parts",
        "us-docker.pkg.dev/example.com/mine/training/digits",
        "docker.io/me/digits",
        "localhost:5000/digits",
    ],
)
def test_a_repository_with_all_its_parts_has_no_problem(repository):
    assert codes(replace(WHOLE, image=Image(repository=repository))) == []
    assert codes(replace(WHOLE, image=Image(uri=f"{repository}:1@sha256:{'0' * 64}"))) == []


@pytest.mark.parametrize(
    ("repository", "written"),
    [
        ("gcr.io/mine-1234/digits", "us-central1-docker.pkg.dev/mine-1234/REPOSITORY/digits"),
        ("eu.gcr.io/mine-1234", "us-central1-docker.pkg.dev/mine-1234/REPOSITORY/digits"),
        (
            "gcr.io/example.com/mine/a/b",
            "us-central1-docker.pkg.dev/example.com/mine/REPOSITORY/a/b",
        ),
    ],
)
def test_container_registry_is_warned_of_and_no_obstacle(repository, written):
    order = LaunchRequest(Path(), replace(WHOLE, image=Image(repository=repository)))
    [problem] = problems(order)
    assert (problem.code, problem.severity) == ("repository-retired", "warning")
    assert f"write {written}; " in problem.remedy
    raise_if_incomplete(order)


def test_images_of_others_are_still_served_as_gcr_io():
    assert codes(replace(WHOLE, image=Image(uri="gcr.io/deeplearning/tf:1"))) == []
