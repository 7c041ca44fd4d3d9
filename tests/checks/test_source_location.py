from __future__ import annotations

import pytest

from distlaunch.checks.problem import warning
from distlaunch.checks.source_location import locate
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.load import load_job

FILE = """\
name: digits
image: {repository: h/p/digits}
cluster:
  chief: {machine: n1-standard-4}
  workers: {machine: n1-standard-4, count: 2}
labels: {team: vision}
scheduling: {timeout: 8d}
"""
SPEC = """\
jobSpec:
  worker_pool_specs:
  - {machineSpec: {machineType: n1-standard-4}}
  - machineSpec: {machineType: n1-standard-4, acceleratorCount: 3}
    replicaCount: 2
  scheduling: {timeout: 700000s}
"""
AI_PLATFORM = """\
trainingInput:
  masterType: n1-standard-4
  workerConfig: {acceleratorConfig: {count: 3}}
  workerCount: 2
  scheduling: {maxRunningTime: 700000s}
"""


COUNT = "cluster.workers.accelerator.count"
TYPE = "cluster.chief.machine"
SECOND = "jobSpec.workerPoolSpecs[1]"


@pytest.fixture
def locate_key(tmp_path, monkeypatch):
    for name, text in (("distlaunch", FILE), ("spec", SPEC), ("ai", AI_PLATFORM)):
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    job = load_job(tmp_path).job

    def run(key, config=None, **order):
        config = tmp_path / config if config else None
        problem = warning("code", key, "--epochs", "remedy")
        [located] = locate([problem], LaunchRequest(tmp_path, job, config=config, **order))
        return located.where

    return run


@pytest.mark.parametrize(
    ("key", "location"),
    [
        ("cluster.workers.count", "distlaunch.yaml:5:44: cluster.workers.count"),
        ("labels.team", "distlaunch.yaml:6:16: labels.team"),
        ("scheduling.strategy", "distlaunch.yaml:7:13: scheduling.strategy"),
        ("env", "distlaunch.yaml: env"),
        ("trainer/data.py:12", "trainer/data.py:12"),
    ],
)
def test_a_key_has_the_location_of_the_longest_part_in_the_file(locate_key, key, location):
    assert locate_key(key) == location


def test_a_key_that_the_command_line_sets_has_its_option(locate_key):
    sets = ("cluster.workers.count=7",)
    assert locate_key("cluster.workers.count", overrides=sets) == "--set cluster.workers.count"
    assert locate_key("cluster.workers", overrides=sets) == "--set cluster.workers.count"
    assert locate_key("cluster.chief", overrides=sets) == "distlaunch.yaml:4:10: cluster.chief"
    assert locate_key("region", cli_overrides={"region": "--region"}) == "--region"
    assert locate_key("args", program_args=("--epochs", "3")) == "arguments after --"
    assert locate_key("args", program_args=("--seed", "3")) == "distlaunch.yaml: args"


@pytest.mark.parametrize(
    ("key", "config", "location"),
    [
        (COUNT, "spec.yaml", f"spec.yaml:4:65: {SECOND}.machineSpec.acceleratorCount"),
        ("cluster.workers.count", "spec.yaml", f"spec.yaml:5:19: {SECOND}.replicaCount"),
        ("scheduling.timeout", "spec.yaml", "spec.yaml:6:25: jobSpec.scheduling.timeout"),
        ("labels.team", "spec.yaml", "distlaunch.yaml:6:16: labels.team"),
        ("service_account", "spec.yaml", "spec.yaml:2:3: jobSpec.serviceAccount"),
        ("region", "spec.yaml", "distlaunch.yaml: region"),
        ("vertex", "spec.yaml", "spec.yaml: "),
        (COUNT, "ai.yaml", "ai.yaml:3:45: trainingInput.workerConfig.acceleratorConfig.count"),
        ("cluster.workers.count", "ai.yaml", "ai.yaml:4:16: trainingInput.workerCount"),
        ("scheduling.timeout", "ai.yaml", "ai.yaml:5:32: trainingInput.scheduling.maxRunningTime"),
    ],
)
def test_with_config_a_key_has_the_location_of_its_field_there(locate_key, key, config, location):
    assert locate_key(key, config) == location
