from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.cluster import Role
from distlaunch_trainer.report import Report, write_summary

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
