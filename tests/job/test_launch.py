"""What is launched, as data."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_jobs import JOB

from distlaunch.errors import UsageError
from distlaunch.job.launch import LaunchRequest, change_job_dir, check_scheme, job_dir_in


def test_an_endpoint_without_tls_is_an_emulator():
    for endpoint in (None, "https://h"):
        assert not LaunchRequest(Path(), JOB, endpoint=endpoint).is_for_emulator
    for endpoint in ("http://127.0.0.1:1", "HTTP://127.0.0.1:1"):
        assert LaunchRequest(Path(), JOB, endpoint=endpoint).is_for_emulator


@pytest.mark.parametrize(
    ("args", "job_dir", "changed"),
    [
        ("", None, ""),
        ("--epochs=5 --job-dir a", "a", "--epochs=5 --job-dir a/b"),
        ("--job-dir=a --epochs 3", "a", "--job-dir=a/b --epochs 3"),
        ("--job-dir a --job-dir=b=c", "b=c", None),
        ("--job-dir=a --job-dir", "a", None),
        ("--job-directory a", None, "--job-directory a"),
    ],
)
def test_the_last_job_dir_counts_and_is_changed_in_either_spelling(args, job_dir, changed):
    assert job_dir_in(args.split()) == job_dir
    if changed is not None:
        assert [*change_job_dir(args.split(), lambda folder: f"{folder}/b")] == changed.split()


def test_a_job_dir_is_a_path_or_in_a_bucket():
    for job_dir in ("gs://bucket/job", "runs/1", "/tmp/a:b", "C:/a"):
        check_scheme(job_dir)
    for job_dir in ("s3://bucket/job", "file:///tmp/a"):
        with pytest.raises(UsageError, match="unsupported URI scheme"):
            check_scheme(job_dir)
