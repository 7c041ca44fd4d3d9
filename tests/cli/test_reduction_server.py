"""Reduction Server as its user meets it: in the plan, on the emulator, in status and logs."""

from __future__ import annotations

import json
import time

import pytest

from distlaunch.cli import main

PATIENCE = 60.0  # seconds
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
# Each task is reached at the address that TF_CONFIG has for it, as training needs.
PROGRAM = """\
import json, os, socket, time

config = json.loads(os.environ["TF_CONFIG"])
pools = json.loads(os.environ["CLUSTER_SPEC"])["cluster"]
host, port = config["cluster"]["worker"][0].split(":")
if config["task"]["type"] == "worker":
    with socket.create_server((host, int(port))) as server:
        server.accept()[0].sendall(b"gradients")
else:
    for _ in range(100):
        try:
            with socket.create_connection((host, int(port)), 5) as peer:
                print("got", peer.recv(99).decode())
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    sizes = {name: len(hosts) for name, hosts in (config["cluster"] | pools).items()}
    print(json.dumps(sizes))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "distlaunch.yaml").write_text(JOB)
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_plan_has_its_pool_and_its_price(project, capfd):
    prices = "us-central1: {STANDARD: {n1-standard-8: 1, NVIDIA_TESLA_T4: 2, n1-highcpu-16: 5}}"
    (project / "distlaunch.prices.yaml").write_text(prices)
    assert main(["check", "--offline"]) == 0
    plan = capfd.readouterr().out
    assert "digits: 2 tasks: chief + 1 worker in us-central1" in plan
    assert "           reduction server  2 x n1-highcpu-16\n" in plan
    assert "reduction server 2 x 5.00" in plan


def test_the_emulator_trains_without_its_replicas(project, cloud, capfd):
    there = ["digits", "--endpoint", cloud.url]
    assert main(["submit", "--detach", "--endpoint", cloud.url]) == 0
    until, job = time.monotonic() + PATIENCE, {}
    while job.get("state") != "SUCCEEDED":
        assert time.monotonic() < until, job
        capfd.readouterr()
        assert main(["status", *there, "--json"]) == 0
        job = json.loads(capfd.readouterr().out)
    assert main(["logs", *there]) == 0
    expected = [tuple(line.split(" | ")) for line in capfd.readouterr().out.splitlines()]
    lines = [(task.strip(), text) for task, text in expected]
    pools = '"workerpool0": 1, "workerpool1": 1, "workerpool2": 2'
    assert ("chief", f'{{"chief": 1, "worker": 1, "ps": 2, {pools}}}') in lines
    assert ("chief", "got gradients") in lines
    why = "as the emulator does not have Google's image"
    assert ("vertex", f"Reduction Server: its 2 replicas are not started, {why}.") in lines

    assert main(["status", *there]) == 0
    assert "reduction server  2 x n1-highcpu-16\n" in capfd.readouterr().out
    assert main(["logs", *there, "--task=reduction-server:1"]) == 0
    assert capfd.readouterr().out == ""
    assert main(["logs", *there, "--task=ps:0"]) == 2
    assert (
        "there are: chief, worker:0, reduction-server:0, reduction-server:1, vertex"
        in capfd.readouterr().err
    )
