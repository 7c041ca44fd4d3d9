from __future__ import annotations

import pytest

from distlaunch.job.job_dir import change_job_dir, job_dir_in


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", None),
        ("--epochs 3", None),
        ("--job-dir a", "a"),
        ("--job-dir=a --epochs 3", "a"),
        ("--job-dir a --job-dir=b=c", "b=c"),
        ("--job-dir=a --job-dir", "a"),
        ("--job-dir --job-dir", "--job-dir"),
        ("--job-directory a", None),
    ],
)
def test_last_job_dir_counts(words, found):
    assert job_dir_in(words.split()) == found


@pytest.mark.parametrize("args", ["--epochs=5 --job-dir=a --seed=1", "--epochs=5 --job-dir a"])
def test_a_job_dir_is_changed_in_either_spelling(args):
    changed = change_job_dir(args.split(), lambda folder: f"{folder}/b")
    assert " ".join(changed) == args.replace("-dir=a", "-dir=a/b").replace("-dir a", "-dir a/b")
