"""Files in Vertex AI's format as gcloud reads them."""

from __future__ import annotations

import pytest

from distlaunch.job import vertex
from distlaunch.job.load import load_job

SEARCH = """\
displayName: search
studySpec:
  metrics: {metricId: loss, goal: MINIMIZE}
  parameters:
    parameterId: optimizer
    categoricalValueSpec: {values: adam}
maxTrialCount: 1
parallelTrialCount: 1
trialJobSpec:
  worker_pool_specs:
    replicaCount: 1
    machineSpec: {machineType: n1-standard-4}
    containerSpec: {imageUri: a/b:1, command: python, args: --epochs=5, env: {name: A, value: b}}
"""
LISTS = """\
displayName: search
studySpec:
  metrics: [{metricId: loss, goal: MINIMIZE}]
  parameters:
  - parameterId: optimizer
    categoricalValueSpec: {values: [adam]}
maxTrialCount: 1
parallelTrialCount: 1
trialJobSpec:
  workerPoolSpecs:
  - replicaCount: 1
    machineSpec: {machineType: n1-standard-4}
    containerSpec:
      {imageUri: a/b:1, command: [python], args: [--epochs=5], env: [{name: A, value: b}]}
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(text):
        (tmp_path / "config.yaml").write_text(text)
        return load_job(tmp_path, config=tmp_path / "config.yaml")

    return read


def request(job):
    return vertex.build_request(job, image=None, labels={}, job_dir=None)


def test_a_single_value_is_a_list_of_one(load):
    alone, lists = load(SEARCH), load(LISTS)
    assert alone == lists
    assert request(alone.job) == request(lists.job)
    assert alone.notes == ()


def test_arguments_in_one_text_are_one_argument_with_a_warning(load):
    found = load("workerPoolSpecs: {replicaCount: 1, containerSpec: {args: --epochs 5}}")
    assert request(found.job)["jobSpec"]["workerPoolSpecs"] == [
        {"replicaCount": 1, "containerSpec": {"args": ["--epochs 5"]}}
    ]
    assert found.notes == (
        "config.yaml: workerPoolSpecs.containerSpec.args: one argument, '--epochs 5'; write a "
        "list for several",
    )
