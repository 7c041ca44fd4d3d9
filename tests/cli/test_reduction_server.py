"""Reduction Server as its user meets it: in the plan, on the emulator, in status and logs."""

from __future__ import annotations

import pytest

from .cloud import Cloud

JOB = """\
name: digits
project: demo-project
region: us-central1
bucket: gs://demo-bucket
module: train
image: {uri: "localhost:5000/digits:1"}
cluster:
  chief: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}
  workers: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}, count: 1}
reduction_server: {replicas: 2}
"""
PROGRAM = """\
import json, os

config = json.loads(os.environ["TF_CONFIG"])
pools = json.loads(os.environ["CLUSTER_SPEC"])["cluster"]
sizes = {name: len(hosts) for name, hosts in (config["cluster"] | pools).items()}
print(json.dumps(sizes))
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(JOB)
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def test_the_plan_has_its_pool_and_its_price(project, run):
    prices = "us-central1: {STANDARD: {n1-standard-8: 1, NVIDIA_TESLA_T4: 2, n1-highcpu-16: 5}}"
    (project / "distlaunch.prices.yaml").write_text(prices)
    plan = run("check", "--offline", cwd=project).out
    assert "digits: 2 tasks: chief + 1 worker in us-central1" in plan
    assert "           reduction server  2 x n1-highcpu-16\n" in plan
    assert "reduction server 2 x 5.00" in plan


def test_the_emulator_trains_without_its_replicas(project, run):
    with Cloud(project) as cloud:
        job = ("digits", "--endpoint", cloud.url)
        done = run("submit", *job, "--job-dir=gs://demo-bucket/digits", cwd=project)
        assert done.code == 0, done.err
        lines = [tuple(map(str.strip, line.split(" | "))) for line in done.out.splitlines()]
        pools = '"workerpool0": 1, "workerpool1": 1, "workerpool2": 2'
        assert ("chief", f'{{"chief": 1, "worker": 1, "ps": 2, {pools}}}') in lines
        why = "as the emulator does not have Google's image"
        text = f"Reduction Server: its 2 replicas are not started, {why}."
        assert ("vertex", text) in lines

        assert " + reduction server 2 x n1-highcpu-16\n" in run("status", *job, cwd=project).out
        assert run("logs", *job, "--task=reduction-server:1", cwd=project).out == ""
        done = run("logs", *job, "--task=ps:0", cwd=project)
        known = "chief, worker:0, reduction-server:0, reduction-server:1, vertex"
        assert (done.code, f"there are: {known}" in done.err) == (2, True)
