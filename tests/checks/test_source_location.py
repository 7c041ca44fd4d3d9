from __future__ import annotations

import pytest

from distlaunch.checks.problem import warning
from distlaunch.checks.source_location import locate
from distlaunch.job.load import load_job
from distlaunch.submit.plan import LaunchRequest

FILE = """\
name: digits
image: {repository: h/p/digits}
cluster:
  chief: {machine: n1-standard-4}
  workers: {machine: n1-standard-4, count: 2}
labels: {team: vision}
"""


@pytest.fixture
def where(tmp_path, monkeypatch):
    (tmp_path / "distlaunch.yaml").write_text(FILE)
    (tmp_path / "spec.yaml").write_text("workerPoolSpecs: []\n")
    monkeypatch.chdir(tmp_path)
    job = load_job(tmp_path).job

    def place(key, **order):
        [problem] = locate(
            [warning("code", key, "--what", "remedy")], LaunchRequest(tmp_path, job, **order)
        )
        return problem.where

    return place


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("cluster.workers.count", "distlaunch.yaml:5:44: cluster.workers.count"),
        (
            "cluster.workers.accelerator.type",
            "distlaunch.yaml:5:12: cluster.workers.accelerator.type",
        ),
        ("labels.team", "distlaunch.yaml:6:16: labels.team"),
        ("scheduling.timeout", "distlaunch.yaml: scheduling.timeout"),
    ],
)
def test_a_key_gets_the_place_of_what_is_nearest_to_it(where, key, place):
    assert where(key) == place


@pytest.mark.parametrize("said", ["trainer/data.py:12", "gs://bucket", "project mine", "data.py:3"])
def test_what_is_no_key_stays_as_it_is(where, said):
    assert where(said) == said


def test_what_the_command_line_says_is_told_as_it_stands_there(where):
    sets = ("cluster.workers.count=7",)
    assert where("cluster.workers.count", overrides=sets) == "--set cluster.workers.count"
    assert where("cluster.workers", overrides=sets) == "--set cluster.workers.count"
    assert where("cluster.chief", overrides=sets) == "distlaunch.yaml:4:10: cluster.chief"


def test_options_of_their_own_and_what_is_behind_the_dashes_are_told_too(where, tmp_path):
    assert where("region", cli_overrides={"region": "--region"}) == "--region"
    assert where("labels.team", cli_overrides={"region": "--region"}).startswith(
        "distlaunch.yaml:6:"
    )
    assert where("args", program_args=("--what", "3")) == "behind --"  # which the problem names
    assert where("args", program_args=("--epochs", "3")) == "distlaunch.yaml: args"


def test_a_key_of_a_job_of_googles_file_is_told_with_that_file(where, tmp_path):
    config = tmp_path / "spec.yaml"
    assert where("cluster.workers.count", config=config) == "spec.yaml: workers.count"
    assert where("labels.team", config=config).startswith("distlaunch.yaml:6:")
    assert where("scheduling.timeout", config=config) == "spec.yaml: scheduling.timeout"
