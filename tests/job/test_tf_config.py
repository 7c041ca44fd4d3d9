from __future__ import annotations

import json
from pathlib import Path

import pytest

from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.job.tasks import Task
from distlaunch.job.tf_config import replica_environment, tf_config

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "replicas.json").read_text())
BY_VERTEX = [cluster for cluster in GOLDEN["clusters"] if cluster["vertex"]]
IN_JSON = {"TF_CONFIG", "CLUSTER_SPEC"}


def parsed(environment: dict[str, str]) -> dict[str, object]:
    return {
        name: json.loads(value) if name in IN_JSON else value for name, value in environment.items()
    }


@pytest.mark.parametrize("cluster", BY_VERTEX, ids=lambda cluster: cluster["name"])
def test_each_replica_sees_what_google_documents(cluster):
    addresses = {Task.parse(name): address for name, address in cluster["addresses"].items()}
    names = {"job_id": cluster["job_id"], "job_dir": cluster["job_dir"]}
    assert {str(task) for task in addresses} == cluster["replicas"].keys()
    for task in addresses:
        seen = parsed(replica_environment(addresses, task, **names))
        assert seen == cluster["replicas"][str(task)]["environment"]

    def pool(kind: str) -> Pool | None:
        count = sum(task.type == kind for task in addresses)
        return Pool(Machine("n1-standard-4"), count) if count else None

    model = Cluster(Pool(Machine("n1-standard-4")), pool("worker"), pool("ps"), pool("evaluator"))
    assert model.describe().partition(": ")[2] == cluster["name"].removesuffix(", no job folder")
    assert model.tasks() == tuple(addresses)


def test_order_of_addresses_is_that_of_the_tasks():
    addresses = {Task("worker", 1): "c:1", Task("worker", 0): "b:1", Task("chief"): "a:1"}
    assert tf_config(addresses, Task("worker", 1)) == {
        "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]},
        "task": {"type": "worker", "index": 1},
    }
