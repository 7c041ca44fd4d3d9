from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.cluster import collectives as cluster_module
from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import Role, role_from
from distlaunch_trainer.errors import ClusterError

from ..conftest import config_of  # noqa: TID252

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "replicas.json").read_text())
REPLICAS = {
    f"{cluster['name']}: {task}": replica
    for cluster in GOLDEN["clusters"]
    for task, replica in cluster["replicas"].items()
}
TWO = {"chief": ["127.0.0.1:1001"], "worker": ["127.0.0.1:1002"]}
CHIEF = {"type": "chief", "index": 0}


@pytest.mark.parametrize("replica", REPLICAS.values(), ids=REPLICAS)
def test_the_environment_of_a_replica_is_read(replica):
    environment = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in replica["environment"].items()
    }
    expected = replica["trainer"]
    role = role_from(environment)
    assert role.type == expected["role"]
    assert role.rank == (-1 if expected["rank"] is None else expected["rank"])
    assert role.num_workers == expected["size"]
    assert role.is_chief == expected["is_chief"]
    assert list(role.addresses) == expected["addresses"]


def test_a_process_without_a_cluster_is_the_chief_alone():
    for text in ("", "  ", "{}", '{"cluster": {}}', '{"cluster": null}'):
        assert role_from({"TF_CONFIG": text}) == role_from({}) == Role()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "TF_CONFIG is not JSON"),
        ("not\njson", "it begins 'not\\njson'"),
        ("[" * 100_000, "TF_CONFIG is not JSON: maximum recursion depth exceeded"),
        ("[]", "expected an object, got list"),
        ({"cluster": ["a:1"]}, "'cluster' must map task types"),
        ({"cluster": {"workerpool0": ["a:1"]}}, "task type 'workerpool0' is none of"),
        ({"cluster": {"worker": "a:1"}}, "cluster.worker must be a list"),
        ({"cluster": {"worker": ["a\n:1"]}}, "cluster.worker: 'a\\n:1' is not 'host:port'"),
        ({"cluster": {"chief": ["a:1"], "worker": ["a:1"]}}, "gives a:1 to more than one task"),
        ({"cluster": {"chief": ["a:1"], "master": ["b:1"]}, "task": CHIEF}, "2 chiefs (a:1, b:1)"),
        ({"cluster": TWO, "task": {"type": ["chief"]}}, "task.type must be one of"),
        *(
            (
                {"cluster": TWO, "task": {"type": "worker", "index": index}},
                "task.index must be a whole number from 0",
            )
            for index in (None, -1, 1.5, True, float("inf"), "0\n")
        ),
        ({"cluster": TWO, "task": CHIEF | {"index": 1}}, "index of a chief must be 0, got 1"),
        ({"cluster": {"worker": ["a:1"]}, "task": CHIEF}, "is chief, and the cluster has worker:0"),
    ],
)
def test_a_malformed_configuration_is_refused_in_one_line(config, message):
    text = config if isinstance(config, str) else json.dumps(config)
    with pytest.raises(ClusterError) as refused:
        role_from({"TF_CONFIG": text})
    assert message in str(refused.value)
    assert str(refused.value).startswith("TF_CONFIG")
    assert "\n" not in str(refused.value)


def test_an_index_may_be_text():
    config = json.dumps({"cluster": TWO, "task": {"type": "worker", "index": "0"}})
    assert role_from({"TF_CONFIG": config}).name == "worker:0"


GATHER = """
import os
import numpy as np
from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.cluster.role import role_from
from distlaunch_trainer.cluster.strategy import connect
role = role_from(os.environ)
cluster = Cluster(role, connect(role))
for shape in (), (1,), (2, 3), (300,), (0, 2):
    own = np.full(shape, role.rank + 0.5)
    print(cluster.all_gather(own).tolist())
print(cluster.broadcast_bytes(b"" if role.rank else b"of the chief"))
print(cluster.broadcast_bytes(b"longer" if role.rank else b""))
cluster.barrier()
"""


@pytest.mark.slow
def test_arrays_of_any_shape_are_gathered_and_bytes_broadcast(python, ports):
    """Of no numbers, TensorFlow's all-reduce kills the process."""
    run = lambda rank: python("-c", GATHER, TF_CONFIG=config_of(ports, rank))  # noqa: E731
    with ThreadPoolExecutor() as pool:
        chief, worker = pool.map(run, range(2))
    assert (chief.returncode, worker.returncode) == (0, 0), chief.stderr + worker.stderr
    shapes = ((), (1,), (2, 3), (300,), (0, 2))
    gathered = [[np.full(shape, n + 0.5).tolist() for n in range(2)] for shape in shapes]
    expected = [*gathered, b"of the chief", b""]
    assert chief.stdout == worker.stdout == "".join(f"{each}\n" for each in expected)


def arrays() -> list[np.ndarray]:
    return [
        np.array([-0.0, np.nan, 1e-320]),
        np.arange(7, dtype=np.int8),
        np.array(True),
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.arange(24, dtype=np.float32).reshape(2, 3, 4).T,
        np.zeros((0, 3)),
        np.arange(1000, dtype=np.int64),
    ]


@pytest.mark.parametrize("is_chief", [True, False])
def test_arrays_of_every_type_are_broadcast_bit_by_bit(monkeypatch, is_chief):
    """One collective takes arrays of 64 bytes here; the last array takes 125."""
    monkeypatch.setattr(cluster_module, "_PACK_BYTES", 64)
    own, sizes, wire = [], [], []
    tasks = {
        name: Cluster(Role(name, ("chief", "worker:0")), tf.distribute.get_strategy())
        for name in ("chief", "worker:0")
    }

    def send(value: np.ndarray) -> np.ndarray:
        wire.append(value)
        return value

    def receive(value: np.ndarray) -> np.ndarray:
        own.append(value)
        sizes.append(value.nbytes)
        return value + wire[len(own) - 1]

    monkeypatch.setattr(tasks["chief"], "all_reduce_sum", send)
    monkeypatch.setattr(tasks["worker:0"], "all_reduce_sum", receive)
    result = tasks["chief"].broadcast_all(arrays())
    if not is_chief:
        result = tasks["worker:0"].broadcast_all([np.ones_like(array) for array in arrays()])
        assert not any(value.any() for value in own)
        assert max(sizes) <= 64
    for array, expected in zip(result, arrays(), strict=True):
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        assert array.tobytes() == expected.tobytes()
