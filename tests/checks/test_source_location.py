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
SECOND = "jobSpec.workerPoolSpecs[1]"
SET = {"overrides": ("cluster.workers.count=7",)}
WORKERS = "cluster.workers.count"
AI_COUNT = "trainingInput.workerConfig.acceleratorConfig.count"


@pytest.mark.parametrize(
    ("key", "config", "order", "location"),
    [
        # The longest part of the key in the file
        (WORKERS, None, {}, f"distlaunch.yaml:5:44: {WORKERS}"),
        ("labels.team", None, {}, "distlaunch.yaml:6:16: labels.team"),
        ("scheduling.strategy", None, {}, "distlaunch.yaml:7:13: scheduling.strategy"),
        ("env", None, {}, "distlaunch.yaml: env"),
        ("trainer/data.py:12", None, {}, "trainer/data.py:12"),
        # The option that sets it
        (WORKERS, None, SET, f"--set {WORKERS}"),
        ("cluster.workers", None, SET, f"--set {WORKERS}"),
        ("cluster.chief", None, SET, "distlaunch.yaml:4:10: cluster.chief"),
        ("region", None, {"cli_overrides": {"region": "--region"}}, "--region"),
        ("args", None, {"program_args": ("--epochs", "3")}, "arguments after --"),
        ("args", None, {"program_args": ("--seed", "3")}, "distlaunch.yaml: args"),
        # Its field in Google's file
        (COUNT, "spec", {}, f"spec.yaml:4:65: {SECOND}.machineSpec.acceleratorCount"),
        (WORKERS, "spec", {}, f"spec.yaml:5:19: {SECOND}.replicaCount"),
        ("scheduling.timeout", "spec", {}, "spec.yaml:6:25: jobSpec.scheduling.timeout"),
        ("labels.team", "spec", {}, "distlaunch.yaml:6:16: labels.team"),
        ("service_account", "spec", {}, "spec.yaml:2:3: jobSpec.serviceAccount"),
        ("region", "spec", {}, "distlaunch.yaml: region"),
        ("vertex", "spec", {}, "spec.yaml: "),
        (COUNT, "ai", {}, f"ai.yaml:3:45: {AI_COUNT}"),
        (WORKERS, "ai", {}, "ai.yaml:4:16: trainingInput.workerCount"),
        ("scheduling.timeout", "ai", {}, "ai.yaml:5:32: trainingInput.scheduling.maxRunningTime"),
    ],
)
def test_a_key_has_the_location_where_it_is_set(
    tmp_path, monkeypatch, *, key, config, order, location
):
    for name, text in (("distlaunch", FILE), ("spec", SPEC), ("ai", AI_PLATFORM)):
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    config = tmp_path / f"{config}.yaml" if config else None
    launch = LaunchRequest(tmp_path, load_job(tmp_path).job, config=config, **order)
    [located] = locate([warning("code", key, "--epochs", "remedy")], launch)
    assert located.where == location
