"""What is launched, as data."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_jobs import JOB

from distlaunch.errors import UsageError
from distlaunch.job.launch import LaunchRequest, change_job_dir, check_scheme, job_dir_in


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        (None, False),
        ("http://127.0.0.1:1", True),
        ("HTTP://127.0.0.1:1", True),
        ("https://h", False),
    ],
)
def test_an_endpoint_without_tls_is_an_emulator(endpoint, expected):
    assert LaunchRequest(Path(), JOB, endpoint=endpoint).is_for_emulator is expected


@pytest.mark.parametrize(
    ("args", "job_dir"),
    [
        ("", None),
        ("--job-dir a", "a"),
        ("--job-dir=a --epochs 3", "a"),
        ("--job-dir a --job-dir=b=c", "b=c"),
        ("--job-dir=a --job-dir", "a"),
        ("--job-directory a", None),
    ],
)
def test_last_job_dir_counts(args, job_dir):
    assert job_dir_in(args.split()) == job_dir


@pytest.mark.parametrize("args", ["--epochs=5 --job-dir=a --seed=1", "--epochs=5 --job-dir a"])
def test_a_job_dir_is_changed_in_either_spelling(args):
    changed = change_job_dir(args.split(), lambda folder: f"{folder}/b")
    assert " ".join(changed) == args.replace("-dir=a", "-dir=a/b").replace("-dir a", "-dir a/b")


def test_a_job_dir_is_a_path_or_in_a_bucket():
    for job_dir in ("gs://bucket/job", "runs/1", "/tmp/a:b", "C:/a"):
        check_scheme(job_dir)
    for job_dir in ("s3://bucket/job", "file:///tmp/a"):
        with pytest.raises(UsageError, match="unsupported URI scheme"):
            check_scheme(job_dir)
