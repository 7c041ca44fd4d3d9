"""Requests are checked against Google's own messages: every problem with its path, and quickly."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from typing import Any

import pytest
from google.cloud import aiplatform_v1
from google.protobuf import json_format

from distlaunch.errors import JobFileError
from distlaunch.job.vertex import proto

SMALL: dict[str, Any] = {
    "displayName": "digits",
    "jobSpec": {
        "workerPoolSpecs": [
            {
                "machineSpec": {"machineType": "n1-standard-4"},
                "replicaCount": 1,
                "containerSpec": {"imageUri": "a/b:1", "env": [{"name": "A", "value": "1"}]},
            },
            {},
        ],
        "scheduling": {"timeout": "3600s"},
    },
    "labels": {"team": "vision"},
}
POOL = ("jobSpec", "workerPoolSpecs", 0)


def changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """Return the small job with a value at a path."""
    job = deepcopy(SMALL)
    section: Any = job
    for step in path[:-1]:
        section = section.setdefault(step, {}) if isinstance(section, dict) else section[step]
    section[path[-1]] = value
    return job


def is_taken_by_google(request: dict[str, Any]) -> bool:
    try:
        json_format.ParseDict(request, aiplatform_v1.CustomJob.pb(aiplatform_v1.CustomJob()))
    except (json_format.ParseError, OverflowError, AttributeError):  # as its parser fails at times
        return False
    return True


def is_taken(request: dict[str, Any]) -> bool:
    try:
        proto.validate_request("customJobs", request)
    except JobFileError:
        return False
    return True


TEXT = "expected text without NUL or broken characters, got"


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("containerSpec", "args"), ["--epochs", 5], f".containerSpec.args[1]: {TEXT} 5"),
        (("containerSpec", "args"), ["a\0b"], f".containerSpec.args[0]: {TEXT} 'a\\x00b'"),
        (("containerSpec", "imageUri"), "\ud83d", f".containerSpec.imageUri: {TEXT} '\\ud83d'"),
        (("containerSpec", "command"), "python", ".containerSpec.command: expected a list, got"),
        (("containerSpec", "env"), ["A=1"], ".containerSpec.env[0]: expected a section, got"),
    ],
)
def test_a_problem_has_its_path(path, value, line):
    with pytest.raises(JobFileError) as error:
        proto.validate_request("customJobs", changed((*POOL, *path), value))
    [problem] = error.value.lines
    assert problem.startswith(f"jobSpec.workerPoolSpecs[0]{line}")


FIELDS = [
    ("displayName",),
    ("labels",),
    ("jobSpec",),
    ("jobSpec", "enableWebAccess"),
    ("jobSpec", "models"),
    ("jobSpec", "scheduling", "strategy"),
    ("jobSpec", "scheduling", "timeout"),
    ("startTime",),
    (*POOL, "replicaCount"),
    (*POOL, "machineSpec", "acceleratorCount"),
    ("error", "details"),
]
VALUES = [
    None, "", "x", "3", "3.0", "3.5", "1e2", " 3", "٣", "1_000", "SPOT", "spot", "4", "3600s",
    "-1.5s", "0.0000000001s", "s", "1h", "2026-11-21T12:00:00Z", "2026-11-21", "true", True, False,
    0, 1, 4, -1, 1.0, 1.5, 1e300, float("inf"), float("nan"), 2**31 - 1, 2**31, 2**63 - 1, 2**63,
    -(2**63) - 1, [], ["x"], [1], [None], {}, {"x": "y"}, {"x": 1}, {"workerPoolSpecs": None},
]  # fmt: skip


SLOPPY = {  # what protobuf's parser takes, though there are no such sections and names
    "jobSpec": {"''", "[]"},
    "strategy": {"'1_000'", "-1", "2147483647"},
}


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: str(path[-1]))
def test_what_google_refuses_is_refused_and_nothing_else(path):
    taken = {repr(value) for value in VALUES if is_taken(changed(path, value))}
    by_google = {repr(value) for value in VALUES if is_taken_by_google(changed(path, value))}
    assert by_google - taken == SLOPPY.get(str(path[-1]), set())
    assert taken <= by_google


PROGRAM = """
import sys
from concurrent.futures import ThreadPoolExecutor
from distlaunch.job.vertex import proto
with ThreadPoolExecutor(8) as pool:
    request = {"displayName": "x"}
    checks = [pool.submit(proto.validate_request, "customJobs", request) for _ in range(8)]
    print({each.result() for each in checks})
services = ("grpc", "google.api_core", "requests", "google.cloud.aiplatform_v1.services")
print([name for name in sys.modules if name.startswith(services)])

from google.cloud import aiplatform_v1
from google.cloud.aiplatform_v1.types import custom_job
proto.validate_request("customJobs", {"displayName": "x"})
assert aiplatform_v1.CustomJob is custom_job.CustomJob
job = aiplatform_v1.CustomJob(display_name="x")
print(job.display_name, aiplatform_v1.JobServiceClient.__name__)
"""


@pytest.mark.slow
def test_threads_may_need_it_at_once_and_the_package_can_be_imported_afterwards():
    old_python = "ignore::FutureWarning:google.api_core._python_version_support"
    command = [sys.executable, "-W", "error", "-W", old_python, "-c", PROGRAM]
    assert subprocess.check_output(command) == b"{None}\n[]\nx JobServiceClient\n"
