"""The evaluator task: what it evaluates, when it ends, and which model it takes as the best."""

from __future__ import annotations

import json
import re
import shutil
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
from distlaunch_trainer.errors import ClusterError, ModelError, TrainingStopped
from distlaunch_trainer.evaluator_task.continuous_evaluation import ContinuousEvaluation
from distlaunch_trainer.evaluator_task.evaluator_status import ChiefSide, has_evaluator
from distlaunch_trainer.input.data_setup import load_evaluation_data
from distlaunch_trainer.model.model_build import build_model
from distlaunch_trainer.model.model_state import ModelState
from distlaunch_trainer.options import Settings
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.run_start import as_evaluator
from distlaunch_trainer.saving.best_model import BestModel
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

    def evaluator(self, **settings: object) -> ContinuousEvaluation:
        loaded = load_evaluation_data(
            Settings(global_batch_size=4), self.cluster, str(self.folder), self.report,
            training=lambda: None, validation=lambda: Arrays(X, 3 * X),
        )  # fmt: skip
        joined = SimpleNamespace(
            settings=Settings(**settings), cluster=self.cluster, report=self.report,
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


def test_each_checkpoint_is_evaluated_once_and_the_best_is_exported(job, capfd):
    for step, weight in ((5, 1.0), (10, 2.5), (15, 4.0)):
        job.save(step, weight)
    with job.ending():
        records = job.evaluator(export="best", export_metric="val_mae").run()
    results = [(each["step"], each["epoch"], each["logs"]["mae"]) for each in records]
    assert results == [(5, 1, mae(1.0)), (10, 2, mae(2.5)), (15, 3, mae(4.0))]
    assert job.evaluated() == [5, 10, 15]
    exported = keras.models.load_model(job.folder / "export/best/model.keras")
    assert exported.layers[0].get_weights()[0] == 2.5
    facts = json.loads((job.folder / "export/best/evaluation.json").read_text())
    assert (facts["step"], facts["metric"], facts["value"]) == (10, "mae", mae(2.5))
    out = capfd.readouterr().out
    assert "evaluation of step 10: loss 7.1250 mae 2.2500 (best, exported)\n" in out
    assert "waiting for evaluator:0 to evaluate step-00000015" in out


def test_a_restarted_evaluator_continues(job):
    job.save(5, 2.5)
    job.save(10, 1.0)
    with job.ending():
        job.evaluator(export="best").run()
    exported = job.folder / "export/best/model.keras"
    before = exported.read_bytes()
    job.save(15, 2.0)
    with job.ending():
        job.evaluator(export="best").run()
    assert job.evaluated() == [5, 10, 15]
    assert exported.read_bytes() == before  # that of step 5 is still the best


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
        job.evaluator(export="best").run()
    job.checkpoints.clear()
    job.chief = ChiefSide(str(job.folder), job.report, is_new=True)
    assert not (job.folder / "export/best").exists()
    job.save(5, 1.0)
    with job.ending():
        (record,) = job.evaluator(export="best").run()
    assert record["logs"]["mae"] == mae(1.0)
    assert (job.folder / "export/best/model.keras").exists()


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


@pytest.mark.parametrize(
    ("metric", "mode", "better"),
    [
        ("val_loss", None, [True, False, True]),
        ("loss", "max", [True, True, False]),
        ("accuracy", None, [True, True, False]),
        ("val_mae", None, [True, False, True]),
    ],
)
def test_low_or_high_is_better_by_the_metric(tmp_path, metric, mode, better):
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae", "accuracy"])
    model.build((None, 1))
    model.evaluate(X, X, verbose=0)
    settings = Settings(export_metric=metric, export_mode=mode)
    best = BestModel(model, settings, str(tmp_path), Report(Role(), ""))
    name = metric.removeprefix("val_")
    assert [best.is_better({name: value}) for value in (2.0, 3.0, 1.0)] == better
    assert not best.is_better({name: float("nan")})


@pytest.mark.parametrize("is_new_complete", [True, False])
def test_an_interrupted_export_leaves_a_whole_model(job, is_new_complete):
    job.save(5, 1.0)
    with job.ending():
        job.evaluator(export="best").run()
    # What a process has written that was killed before, or while, it replaced the folder.
    export = job.folder / "export"
    shutil.copytree(export / "best", export / ".new")
    if is_new_complete:
        (export / ".new/evaluation.json").write_text('{"metric": "loss", "value": 0.125}')
        shutil.rmtree(export / "best")
    else:
        (export / ".new/evaluation.json").unlink()
    best = BestModel(job.model, Settings(), str(job.folder), job.report)
    best.load()
    assert best.best == (0.125 if is_new_complete else 114.0)
    keras.models.load_model(export / "best/model.keras")
    assert (export / "best/saved_model.pb").exists()


def test_an_unknown_metric_is_refused_before_the_training(tmp_path):
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    folder, report = str(tmp_path), Report(Role(), "")
    with pytest.raises(ModelError, match="--export-metric acuracy: no metric of this name is"):
        BestModel(model, Settings(export_metric="val_acuracy"), folder, report)
    settings = Settings(export_metric="acuracy", export_mode="max")
    best = BestModel(model, settings, folder, report)
    with pytest.raises(ModelError, match="acuracy: no such number; there are: loss, mae"):
        best.is_better({"loss": 1.0, "mae": 2.0})
