"""The variables of a task of Slurm: the same as on Vertex AI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.local.host_resources import NO_GPU
from distlaunch_trainer.errors import ClusterError
from distlaunch_trainer.slurm.environment import environment, export_lines, task_names

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "replicas.json").read_text())
OF_VERTEX = [cluster for cluster in GOLDEN["clusters"] if cluster["vertex"]]
STEP = {
    "SLURM_JOB_ID": "12",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_DISTRIBUTION": "block",
}


def variables(**changes: str) -> dict[str, str]:
    return environment({key: value for key, value in (STEP | changes).items() if value})


def parsed(seen: dict[str, str], addresses: dict[str, str]) -> dict[str, object]:
    """Return variables with the addresses of the golden file in place of those of the step."""
    pairs = zip(_hosts(seen), addresses.values(), strict=True)
    for own, golden in pairs:
        seen = {key: value.replace(f'"{own}"', f'"{golden}"') for key, value in seen.items()}
    in_json = {"TF_CONFIG", "CLUSTER_SPEC"}
    return {key: json.loads(value) if key in in_json else value for key, value in seen.items()}


def _hosts(seen: dict[str, str]) -> list[str]:
    spec = json.loads(seen["CLUSTER_SPEC"])["cluster"]
    return [host for pool in spec.values() for host in pool]


@pytest.mark.parametrize("cluster", OF_VERTEX, ids=lambda cluster: cluster["name"])
def test_each_task_sees_what_a_replica_does(cluster):
    addresses = cluster["addresses"]
    counts: dict[str, int] = {}
    for name in addresses:
        kind = name.partition(":")[0]
        counts[kind] = counts.get(kind, 0) + 1
    for rank, name in enumerate(addresses):
        seen = variables(
            SLURM_PROCID=str(rank),
            SLURM_STEP_NODELIST=f"n[1-{len(addresses)}]",
            SLURM_STEP_TASKS_PER_NODE=f"1(x{len(addresses)})",
            DISTLAUNCH_CLUSTER=json.dumps(counts),
            DISTLAUNCH_LAUNCH_ID=cluster["job_id"],
            DISTLAUNCH_JOB_DIR=cluster["job_dir"] or "",
        )
        assert parsed(seen, addresses) == cluster["replicas"][name]["environment"]


def test_tasks_are_numbered_as_those_of_a_cluster():
    pool = Pool(Machine(""), 2)
    cluster = Cluster(Pool(Machine("")), pool, pool, pool)
    counts = {"evaluator": 2, "ps": 2, "worker": 2, "chief": 1}
    assert task_names(counts) == [str(task) for task in cluster.tasks()]


def test_tasks_of_one_node_and_jobs_beside_each_other_have_ports_of_their_own():
    first, second = (_hosts(variables(SLURM_JOB_ID=number)) for number in ("12", "13"))
    assert [host.partition(":")[0] for host in first] == ["n1", "n1", "n2"]
    ports = [host.partition(":")[2] for host in first + second]
    assert len({*ports}) == 6
    assert all(1024 < int(port) < 32768 for port in ports)


def test_without_a_cluster_there_are_a_chief_and_workers():
    config = json.loads(variables()["TF_CONFIG"])
    assert [len(config["cluster"][kind]) for kind in ("chief", "worker")] == [1, 2]
    assert config["task"] == {"type": "worker", "index": 0, "cloud": "slurm-12"}


@pytest.mark.parametrize("distribution", ["", "block:cyclic", "cyclic,Pack"])
def test_the_order_of_a_task_per_node_is_that_of_the_nodes(distribution):
    step = {"SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_TASKS_PER_NODE": "1(x3)"}
    hosts = _hosts(variables(**step, SLURM_DISTRIBUTION=distribution))
    assert [host.partition(":")[0] for host in hosts] == ["n1", "n2", "n3"]


def test_a_task_without_gpus_leaves_those_of_the_step_idle():
    cluster = json.dumps({"chief": 1, "worker": 1, "ps": 1})
    gpus = json.dumps({"chief": 4, "worker": 4, "ps": 0})
    of_worker = variables(DISTLAUNCH_CLUSTER=cluster, DISTLAUNCH_GPUS=gpus)
    of_server = variables(DISTLAUNCH_CLUSTER=cluster, DISTLAUNCH_GPUS=gpus, SLURM_PROCID="2")
    assert of_worker["DISTLAUNCH_EXPECTED_GPUS"] == "4"
    assert of_server["CUDA_VISIBLE_DEVICES"] == NO_GPU
    assert "DISTLAUNCH_EXPECTED_GPUS" not in of_server


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"SLURM_PROCID": ""}, "no task of a Slurm step"),
        ({"SLURM_STEP_NODELIST": ""}, "no task of a Slurm step"),
        ({"SLURM_STEP_TASKS_PER_NODE": "3"}, "Slurm lists 2 nodes, and tasks of 1"),
        ({"SLURM_DISTRIBUTION": "cyclic"}, "pass --distribution=block to srun"),
        ({"DISTLAUNCH_CLUSTER": '{"chief": 1}'}, "pass --ntasks=1"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ClusterError, match=message):
        variables(**changes)


def test_lines_for_a_shell():
    assert export_lines({"A": "x", "B": "it's"}) == ["export A=x", "export B='it'\"'\"'s'"]
