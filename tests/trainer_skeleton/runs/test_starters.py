"""Starters, created by `init` and trained by `local` as their READMEs say."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def last_logs(project, job="job"):
    return project.summary(job)["epochs"][-1]["logs"]


def test_digits_reaches_the_accuracy_of_its_readme(new_starter):
    project = new_starter("digits")
    project.own_tests()
    project.local("job")  # the cluster and the arguments of its job file
    assert project.summary("job")["tasks"] == ["chief", "worker:0"]
    assert last_logs(project)["val_accuracy"] >= 0.94
    project.check_model("job")


def test_own_script_reaches_the_accuracy_of_its_readme(new_starter):
    project = new_starter("own-script")
    project.own_tests()
    project.local("job")
    assert last_logs(project)["val_accuracy"] >= 0.99
    project.check_model("job", 8, 12, 12, 1)
