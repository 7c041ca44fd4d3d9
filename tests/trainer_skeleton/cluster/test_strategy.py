"""The strategy is chosen from cluster and devices; what does not fit is refused with the reason."""

from __future__ import annotations

import json
import os
import re
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from distlaunch_trainer import options
from distlaunch_trainer.cluster.rendezvous import Rendezvous
from distlaunch_trainer.cluster.role import Role, role_from
from distlaunch_trainer.cluster.strategy import check_same_strategy, choose, connect, describe
from distlaunch_trainer.errors import ClusterError, ModelError
from distlaunch_trainer.options import Settings

from ..conftest import config_of  # noqa: TID252

ONE = ["CPU:0"]
FOUR = [f"GPU:{number}" for number in range(4)]
ALONE = Role()
PAIR = Role("chief", ("chief", "worker:0"), ("a:1", "b:1"))
WITH_SERVERS = Role("chief", ("chief", "worker:0"), ("a:1", "b:1"), ("c:1",))
CHIEF = {"type": "chief", "index": 0}


@pytest.mark.parametrize(
    ("role", "requested", "devices", "name"),
    [
        (ALONE, None, ONE, "one-device"),
        (ALONE, None, FOUR, "mirrored"),
        (ALONE, "one-device", FOUR, "one-device"),
        (ALONE, "multi-worker", FOUR, "multi-worker"),
        (ALONE, "tpu", ONE, "tpu"),
        (PAIR, None, ONE, "multi-worker"),
        (PAIR, None, FOUR, "multi-worker"),
        (WITH_SERVERS, None, FOUR, "parameter-server"),
        (WITH_SERVERS, "parameter-server", ONE, "parameter-server"),
    ],
)
def test_the_strategy_fits_cluster_and_devices(role, requested, devices, name):
    assert choose(role, requested, devices) == name


@pytest.mark.parametrize(
    ("role", "requested", "devices", "message"),
    [
        (PAIR, "mirrored", FOUR, "trains on one machine, and TF_CONFIG names 2 training tasks"),
        (PAIR, "one-device", ONE, "trains on one machine, .*: use multi-worker"),
        (PAIR, "tpu", ONE, "trains on one machine, .*: use multi-worker"),
        (ALONE, "mirrored", ONE, "mirrored needs several devices, and this task has CPU:0"),
        (PAIR, "parameter-server", ONE, "no parameter servers: add the pool parameter_servers"),
        (WITH_SERVERS, "multi-worker", ONE, "multi-worker has no part for ps:0"),
        (Role("ps:0", ("chief",)), None, ONE, "has no part for ps:0: take the pool out"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(role, requested, devices, message):
    with pytest.raises(ClusterError, match=message):
        choose(role, requested, devices)


@pytest.mark.parametrize("name", ["central-storage", "default", "mirored"])
def test_strategies_that_do_not_train_are_refused(capsys, name):
    with pytest.raises(SystemExit) as refused:
        options.parser().parse_args(["--strategy", name])
    assert refused.value.code == 2
    assert re.search(f"invalid choice: '{name}' .*multi-worker.*mirrored", capsys.readouterr().err)


def test_other_strategies_take_no_cross_device_ops():
    with pytest.raises(ClusterError, match="for the mirrored strategy, and this is one-device"):
        connect(ALONE, Settings(cross_device_ops="nccl"))


def test_no_tpu_here_is_one_line():
    with pytest.raises(ClusterError, match="no TPU 'local' can be started: ") as refused:
        connect(ALONE, Settings(strategy="tpu"))
    assert "\n" not in str(refused.value)


def test_one_worker_may_be_a_cluster_whose_variables_are_read_as_numbers():
    strategy = connect(ALONE, Settings(strategy="multi-worker"))
    assert describe(strategy, ALONE) == "strategy: multi-worker, 1 replica"
    with strategy.scope():
        variable = keras.Variable(1.25)
    assert (float(variable), int(variable), complex(variable.value)) == (1.25, 1, 1.25)


def test_a_requested_device_is_a_strategy():
    strategy = connect(ALONE, Settings(strategy="one-device"))
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    assert describe(strategy, ALONE) == "strategy: one-device, 1 replica"


def test_a_task_that_does_not_train_is_refused():
    with pytest.raises(ClusterError, match=r" has no part for evaluator:0: take the pool out"):
        connect(Role("evaluator:0", ("chief",), ("127.0.0.1:1",)))


def test_a_time_limit_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("DISTLAUNCH_PEER_TIMEOUT", "soon")
    with pytest.raises(ClusterError, match=r"DISTLAUNCH_PEER_TIMEOUT must be a number of seconds"):
        connect(role_from({"TF_CONFIG": config_of([1, 2], 0)}))


PEERS = "chief-0,10.0.0.2,fd00::2"


@pytest.mark.parametrize(
    ("given", "no_proxy", "no_grpc_proxy"),
    [
        ({"NO_PROXY": ".corp, 10.1.2.3"}, *[f".corp,10.1.2.3,{PEERS}"] * 2),
        ({"no_proxy": "*"}, "*", f"*,{PEERS}"),
        ({"no_grpc_proxy": "10.0.0.2,other"}, PEERS, "10.0.0.2,other,chief-0,fd00::2"),
        ({"no_grpc_proxy": "", "no_proxy": ".corp"}, f".corp,{PEERS}", PEERS),
    ],
)
def test_peers_are_reached_without_a_proxy(monkeypatch, given, no_proxy, no_grpc_proxy):
    environments = []
    monkeypatch.setattr(
        "tensorflow.distribute.MultiWorkerMirroredStrategy",
        lambda *_: environments.append(dict(os.environ)),
    )
    monkeypatch.setattr(Rendezvous, "exchange", lambda _, __, value, ___: [value])
    workers = ["10.0.0.2:2222", "[fd00::2]:2222"]
    config = {"cluster": {"chief": ["chief-0:2222"], "worker": workers}, "task": CHIEF}
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        os.environ.pop(name, None)
    os.environ.update(given)
    connect(role_from({"TF_CONFIG": json.dumps(config)}))
    assert environments[0]["no_proxy"] == no_proxy
    assert environments[0]["no_grpc_proxy"] == no_grpc_proxy


CONNECT = """
import os
from distlaunch_trainer.cluster.role import role_from
from distlaunch_trainer.cluster.strategy import connect
connect(role_from(os.environ))
"""


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_peer_that_does_not_come_is_named(run_code, ports, rank):
    environment = {"TF_CONFIG": config_of(ports, rank), "DISTLAUNCH_PEER_TIMEOUT": "1"}
    task = run_code(CONNECT, **environment)
    assert task.code == 1
    missing = (f"worker:0 (127.0.0.1:{ports[1]})", f"chief (127.0.0.1:{ports[0]})")[rank]
    assert f"trainer: error: {missing} did not come within 1 s: " in task.err
    assert "Traceback" not in task.err


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([keras.Input((2,)), keras.layers.Dense(1)], "its weight .*/kernel was created without"),
        ([keras.layers.Dense(1)], "_DefaultDistributionStrategy of the thread MainThread is not"),
    ],
)
def test_a_model_that_would_train_apart_is_refused(layers, message):
    several = SimpleNamespace(num_replicas_in_sync=2)
    model = keras.Sequential(layers, name="model")
    with pytest.raises(ModelError, match=re.escape("fit() of model: ") + message):
        check_same_strategy(model, several, "fit()")
    check_same_strategy(model, tf.distribute.get_strategy(), "fit()")
