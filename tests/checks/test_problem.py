"""What is wrong and its remedy reach `check --json`, whatever characters they have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.checks import image_check
from distlaunch.checks.cloud.context import no_credentials, not_checked
from distlaunch.checks.problem import Problem, more_about
from distlaunch.checks.project import requirements
from distlaunch.checks.project.image_runtime import ImageRuntime
from distlaunch.checks.report import unreadable_as_json
from distlaunch.documentation import SITE
from distlaunch.errors import (
    ContextError,
    CreateRefused,
    Diagnostic,
    GoogleError,
    ImageError,
    JobFileError,
    RetryableError,
)
from distlaunch.image.registry.errors import RegistryError, RegistryUnreachable
from distlaunch.image.registry.manifests import WrongPlatform
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.model import Cluster, Image, Job, Machine, Pool

PARTS = st.lists(st.sampled_from(["; ", ": ", ";", ":", "a", "B 1", "(x)"]), min_size=1, max_size=6)
TEXTS = PARTS.map("".join)
DIAGNOSTICS = st.builds(Diagnostic, TEXTS, TEXTS, st.just("at: a; b"))
FOLDER = Path(__file__).parent
JOB = Job("a", cluster=Cluster(Pool(Machine("n1-standard-4"))), image=Image("h/p/r/n"))


def fields(problem):
    return problem.where, problem.what, problem.remedy


@given(st.lists(DIAGNOSTICS, min_size=1, max_size=3))
def test_those_of_a_job_file_of_requirements_and_of_an_image(diagnostics):
    content = unreadable_as_json(JobFileError(problems=diagnostics))["problems"]
    assert [(each["where"], each["what"], each["remedy"]) for each in content] == [
        *map(fields, diagnostics)
    ]
    assert [*json.loads(json.dumps(content[0]))] == [
        *("code", "severity", "where", "what", "remedy", "url")
    ]
    assert content[0]["url"] == f"{SITE}look-up/check-codes.html#job-file-invalid"
    [first, *_] = diagnostics
    runtime = ImageRuntime("python:3.12", (3, 12), is_plain=True)
    listed = requirements.ImageRequirements(runtime, refusal=first)
    assert [*map(fields, requirements.problems(listed))] == [fields(first)]
    for error in (
        ContextError(problems=diagnostics),
        ImageError(first.what, where=first.where, remedy=first.remedy),
        RegistryError(first, 500),
        WrongPlatform(problems=[first]),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(image_check, "plan_image", lambda *_, error=error, **__: raising(error))
            problems = image_check.check_image(LaunchRequest(FOLDER, JOB)).problems
        assert [*map(fields, problems)] == [*map(fields, error.problems)]


@given(st.sampled_from([GoogleError, RetryableError, CreateRefused]), TEXTS, TEXTS)
def test_those_of_google(kind, what, remedy):
    error = kind(what, remedy=remedy, status=500, reason="INTERNAL")
    error = CreateRefused.from_error(error) if kind is CreateRefused else error
    assert fields(not_checked("bucket", error)) == ("bucket", f"not checked: {what}", remedy)
    assert no_credentials(error).what == f"cloud checks skipped: {what}"
    assert no_credentials(error).remedy == remedy


def raising(error):
    raise error


def test_the_setting_of_a_registry_is_not_found_in_its_text():
    job = Job("a", cluster=JOB.cluster, image=Image("h/p/r/n", base="python:3.12"))
    for is_of_base, where in ((True, "image.base"), (False, "image.repository")):
        error = RegistryUnreachable("python:3.12 is not an answer")
        error.is_of_base = is_of_base
        replies = iter([error, ImageError("done")])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(image_check, "plan_image", lambda *_, r=replies, **__: raising(next(r)))
            first, *_ = image_check.check_image(LaunchRequest(FOLDER, job)).problems
        assert first.where == where


def test_the_problem_to_read_about_is_an_error_and_no_placeholder():
    texts = ("what", "remedy", "where")
    problems = [Problem(*texts, "placeholder-bucket"), Problem(*texts, "image-large", "warning")]
    assert more_about(problems).endswith(" docs placeholder-bucket")
    assert more_about([*problems, Problem(*texts, "no-region")]).endswith(" docs no-region")
