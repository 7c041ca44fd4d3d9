"""The evaluator task: what it evaluates, and when it ends."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer import Arrays
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import ClusterError, TrainingStopped
from distlaunch_trainer.evaluator_task.continuous_evaluation import ContinuousEvaluation
from distlaunch_trainer.evaluator_task.evaluator_status import ChiefSide, has_evaluator
from distlaunch_trainer.input.data_setup import load_evaluation_data
from distlaunch_trainer.model.model_build import build_model
from distlaunch_trainer.model.model_state import ModelState
from distlaunch_trainer.options import Settings
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.run_start import as_evaluator
from distlaunch_trainer.saving.checkpoints import Checkpoint, Checkpoints
from distlaunch_trainer.training_state import Progress, RunOptions, TrainingState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

X = np.arange(10.0, dtype="float32").reshape(10, 1)
OPTIONS = RunOptions(
    examples=10, global_batch=2, shards=1, seed=0, shuffle=0, steps_per_epoch=5,
    precision="float32",
)  # fmt: skip


class Signal:
    received = False

    def defer(self) -> None:
        """Be set by tests, as after a signal that is deferred."""


class Job:
    """A job folder, of which the chief's checkpoints are written here."""

    def __init__(self, folder: Path, cluster) -> None:
        self.folder, self.cluster = folder, cluster
        self.report = Report(Role(), str(folder / "logs"))
        self.checkpoints = Checkpoints(str(folder / "checkpoints"), self.report)
        self.model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        self.model.compile("sgd", "mse", metrics=["mae"])
        spec = tf.TensorSpec([None, 1], tf.float32)
        build_model(self.model, (spec, spec))
        self.chief = ChiefSide(str(folder), self.report, is_new=True)
        self.signal = Signal()

    def save(self, step: int, weight: float) -> None:
        state = ModelState(self.model, self.cluster.strategy)
        self.model.layers[0].set_weights([np.array([[weight]]), np.array([0.0])])
        saved = TrainingState(OPTIONS, Progress(step, [{}] * (step // 5)))
        self.checkpoints.save(Checkpoint(saved, state.describe(), state.snapshot()))
        self.checkpoints.wait()

    def evaluator(self) -> ContinuousEvaluation:
        loaded = load_evaluation_data(
            Settings(global_batch_size=4), self.cluster, str(self.folder), self.report,
            training=lambda: None, validation=lambda: Arrays(X, 3 * X),
        )  # fmt: skip
        joined = SimpleNamespace(
            settings=Settings(), cluster=self.cluster, report=self.report,
            checkpoints=Checkpoints(str(self.folder / "checkpoints"), self.report),
            folders=SimpleNamespace(job=str(self.folder)), stop=self.signal,
        )  # fmt: skip
        return ContinuousEvaluation(joined, self.model, loaded.training)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Let the chief wait at the end of the training, and end before the block does."""
        final = self.checkpoints.newest
        thread = threading.Thread(target=self.chief.wait, args=(final, lambda: False))
        thread.start()
        yield
        thread.join(60)
        assert not thread.is_alive()

    def evaluated(self) -> list[int]:
        lines = (self.folder / "evaluations.jsonl").read_text().splitlines()
        return [json.loads(line)["step"] for line in lines]


@pytest.fixture
def job(tmp_path, cluster) -> Job:
    return Job(tmp_path, cluster)


def mae(weight: float) -> float:
    return float(np.abs(weight * X - 3 * X).mean())


def test_each_checkpoint_is_evaluated_once(job, capfd):
    for step, weight in ((5, 1.0), (10, 2.5), (15, 4.0)):
        job.save(step, weight)
    with job.ending():
        records = job.evaluator().run()
    results = [(each["step"], each["epoch"], each["logs"]["mae"]) for each in records]
    assert results == [(5, 1, mae(1.0)), (10, 2, mae(2.5)), (15, 3, mae(4.0))]
    assert job.evaluated() == [5, 10, 15]
    out = capfd.readouterr().out
    assert "evaluation of step 10: loss 7.1250 mae 2.2500\n" in out
    assert "waiting for evaluator:0 to evaluate step-00000015" in out


def test_a_restarted_evaluator_continues(job):
    job.save(5, 2.5)
    job.save(10, 1.0)
    with job.ending():
        job.evaluator().run()
    job.save(15, 2.0)
    with job.ending():
        records = job.evaluator().run()
    assert job.evaluated() == [5, 10, 15]
    assert [each["logs"]["mae"] for each in records] == [mae(2.5), mae(1.0), mae(2.0)]


def test_weights_are_evaluated_whichever_optimizer_has_trained_them(job):
    job.model.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 10)), "mse")
    job.model.optimizer.build(job.model.trainable_variables)
    job.save(5, 2.5)
    job.model.compile("sgd", "mse", metrics=["mae"])
    with job.ending():
        (record,) = job.evaluator().run()
    assert record["logs"]["mae"] == mae(2.5)


def test_damaged_and_unfinished_checkpoints_are_left_out(job, capfd):
    for step in (5, 10, 15):
        job.save(step, 1.0)
    damaged, unfinished, _ = sorted((job.folder / "checkpoints").iterdir())
    (damaged / "values.npz").write_bytes(b"")
    (unfinished / "checkpoint.json").unlink()
    with job.ending():
        job.evaluator().run()
    assert job.evaluated() == [15]
    warnings = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert "step-00000005 is damaged" in warnings[0]
    assert warnings[0].endswith("it is not evaluated")


def test_a_run_from_scratch_forgets_the_evaluations_before(job):
    job.save(5, 2.9)
    with job.ending():
        job.evaluator().run()
    job.checkpoints.clear()
    job.chief = ChiefSide(str(job.folder), job.report, is_new=True)
    assert not (job.folder / "evaluations.jsonl").exists()
    job.save(5, 1.0)
    with job.ending():
        (record,) = job.evaluator().run()
    assert record["logs"]["mae"] == mae(1.0)


def test_a_stop_signal_ends_the_evaluator(job):
    job.save(5, 1.0)
    job.signal.received = True
    with pytest.raises(TrainingStopped, match="stopped by a signal: evaluated up to step 0"):
        job.evaluator().run()


def test_the_chief_gives_up_on_an_evaluator_that_is_gone(job, monkeypatch, capfd):
    monkeypatch.setenv("DISTLAUNCH_PEER_TIMEOUT", "0.2")
    job.save(5, 1.0)
    job.chief.wait("step-00000005", lambda: False)
    warning = r"evaluator:0 has made no progress for [01] s: step-00000005 was not evaluated; see"
    assert re.search(warning, capfd.readouterr().err)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"TF_CONFIG": '{"cluster": {"chief": ["a:1"]}}'}, False),
        ({"TF_CONFIG": '{"cluster": {"chief": ["a:1"], "evaluator": ["b:1"]}}'}, True),
        ({"CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a:1"], "workerpool3": ["b:1"]}}'}, True),
        ({"CLUSTER_SPEC": '{"cluster": {"workerpool3": []}}'}, False),
        ({"TF_CONFIG": "[", "CLUSTER_SPEC": "3"}, False),
    ],
)
def test_the_chief_knows_whether_there_is_an_evaluator(environ, expected):
    assert has_evaluator(environ) is expected


def test_an_evaluator_is_a_cluster_of_its_own():
    role = Role("evaluator:0", ("chief", "worker:0"), ("a:1", "b:1"), ("c:1",))
    alone, settings = as_evaluator(role, Settings(strategy="multi-worker"))
    assert (alone.num_workers, alone.addresses, alone.parameter_servers) == (1, (), ())
    assert settings.strategy is None
    with pytest.raises(ClusterError, match="evaluator:1: a job has one evaluator: set count: 1"):
        as_evaluator(replace(role, name="evaluator:1"), Settings())
