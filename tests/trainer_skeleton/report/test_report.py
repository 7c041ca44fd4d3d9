from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.input.batches import Data
from distlaunch_trainer.input.data_setup import TrainingData
from distlaunch_trainer.input.order.plan import BatchPlan
from distlaunch_trainer.report.report import Report, epoch_record, write_summary
from distlaunch_trainer.run_facts import hash_modules, run_summary
from distlaunch_trainer.step.step_timing import mean_timing, table_of_steps, task_timing
from distlaunch_trainer.training_state import Progress, RunOptions

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "summary.json").read_text())

CHIEF = Role()
WORKER = Role("worker:0", ("chief", "worker:0"), ("127.0.0.1:1", "127.0.0.1:2"))


def scalars(folder):
    (file,) = folder.iterdir()
    values = []
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        event = tf.compat.v1.Event.FromString(record)
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            values.append((value.tag, event.step, float(tf.make_ndarray(value.tensor))))
    return values


def test_events_are_appended_as_whole_lines_of_json(tmp_path, monkeypatch):
    path = tmp_path / "chief.events.jsonl"
    path.write_text('{"event": "ready"}\n')
    monkeypatch.setenv("DISTLAUNCH_EVENTS", str(path))
    report = Report(WORKER, "logs")
    report.event("step", step=1, loss=np.float32(0.25))
    report.event("epoch", logs={"loss": math.nan, "mae": -math.inf, "f1": np.float32("nan")})
    lines = path.read_text().splitlines(keepends=True)
    assert all(line.endswith("\n") for line in lines)
    ready, step, epoch = map(json.loads, lines)
    assert ready == {"event": "ready"}
    assert step.pop("time") <= epoch.pop("time")
    assert step == {"event": "step", "step": 1, "loss": 0.25}
    assert epoch == {"event": "epoch", "logs": {"loss": None, "mae": None, "f1": None}}
    assert "NaN" not in lines[2]


def test_only_the_chief_prints_and_writes_scalars(capsys, tmp_path):
    for role in (WORKER, CHIEF):
        report = Report(role, str(tmp_path / role.name))
        report.log(f"log of {role.name}")
        report.warn(f"warning of {role.name}")
        for epoch in (0, 1):
            report.scalars(epoch, {"loss": 0.5, "val_loss": 0.75})
    assert capsys.readouterr() == ("log of chief\n", "trainer: warning: warning of chief\n")
    assert [path.name for path in tmp_path.iterdir()] == ["chief"]
    assert scalars(tmp_path / "chief/train") == [("epoch_loss", 0, 0.5), ("epoch_loss", 1, 0.5)]
    validation = [("epoch_loss", 0, 0.75), ("epoch_loss", 1, 0.75)]
    assert scalars(tmp_path / "chief/validation") == validation


@pytest.mark.parametrize(
    ("rates", "median"),
    [([], None), ([5.0], 5.0), ([5.0, 90.0], 90.0), ([5.0, 100.0, 90.0, 101.0], 100.0)],
)
def test_the_summary_holds_the_facts_and_the_steady_rate(tmp_path, monkeypatch, rates, median):
    monkeypatch.setenv("DISTLAUNCH_RESTARTS", "2")
    epochs = [{"examples_per_second": rate, "logs": {"loss": math.nan}} for rate in rates]
    write_summary(str(tmp_path), {"steps": np.int64(46), "epochs": epochs, "resumed_from": None})
    assert json.loads((tmp_path / "summary.json").read_text()) == {
        "steps": 46,
        "epochs": [{"examples_per_second": rate, "logs": {"loss": None}} for rate in rates],
        "resumed_from": None,
        "examples_per_second": median,
        "restarts": 2,
    }


def test_the_summary_is_the_golden_file(tmp_path, monkeypatch):
    for name, text in (("data.py", "A = 1\n"), ("task.py", ""), ("model.py", ""), ("b.py", "")):
        (tmp_path / name).write_text(text)
    program = SimpleNamespace(__file__=str(tmp_path / "task.py"))
    monkeypatch.setitem(sys.modules, "__main__", program)
    monkeypatch.delenv("DISTLAUNCH_RESTARTS", raising=False)
    tasks = ("chief", "worker:0")
    steps = np.array([0.5, 0.5])
    seconds = [[steps, steps / 8, exchanged] for exchanged in (steps / 4, steps / 2)]
    table = table_of_steps(np.array(seconds))
    timing = mean_timing(2, table)
    figures = {"examples": 1437, "rates": {"learning_rate": 0.5}, "timing": timing}
    history = [
        epoch_record(0, 23, {"loss": 0.5, "val_loss": 0.75}, seconds=4.0, **figures),
        epoch_record(1, 46, {"loss": math.nan, "f1_score": [0.5, 1.0]}, seconds=2.0, **figures),
    ]
    file = {"path": "data/train-0.tfrecord", "bytes": 45313, "modified_ns": 17, "examples": 1437}
    records = {"kind": "records", "pattern": "data/train-*.tfrecord", "files": [file]}
    options = RunOptions(1437, 64, 240, 0, 10_000, 23, "float32")
    final = Progress(46, history)
    training = Data(None, BatchPlan(1437, 64, 2), records)
    validation = Data(None, BatchPlan(360, 64, 2), {"kind": "arrays"})
    data = TrainingData(training, validation, options, None)
    summary = run_summary(data, final, SimpleNamespace(replicas=2), tasks, first_step=0) | {
        "model": "/jobs/digits/model",
        "model_files": ["model.keras", "saved_model/saved_model.pb"],
        "timing": task_timing(2, table, tasks),
        "gradient_bytes": 51_240,
        "machine": {"cpus": 4, "gpus": [], "memory_bytes": 16_000_000_000},
        "data_modules": hash_modules(),
    }
    assert write_summary(str(tmp_path), summary) == GOLDEN
