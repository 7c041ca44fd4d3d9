from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tensorflow as tf

from trainer.distributed.cluster import Role
from trainer.distributed.report import Report, epoch_line, write_summary

if TYPE_CHECKING:
    from pathlib import Path

CHIEF = Role()
WORKER = Role("worker:0", ("chief", "worker:0"), ("127.0.0.1:1", "127.0.0.1:2"))


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "chief.events.jsonl"
    monkeypatch.setenv("DISTLAUNCH_EVENTS", str(path))
    return path


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    (file,) = folder.iterdir()
    values = []
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        event = tf.compat.v1.Event.FromString(record)
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            values.append((value.tag, event.step, float(tf.make_ndarray(value.tensor))))
    return values


def test_events_are_appended_as_whole_lines(events):
    events.write_text('{"event": "ready"}\n')
    report = Report(WORKER, "logs")
    report.event("step", step=1, loss=0.5)
    report.event("step", step=2, loss=np.float32(0.25))
    lines = events.read_text().splitlines(keepends=True)
    assert all(line.endswith("\n") for line in lines)
    ready, first, second = map(json.loads, lines)
    assert ready == {"event": "ready"}
    assert first.pop("time") <= second.pop("time")
    assert first == {"event": "step", "step": 1, "loss": 0.5}
    assert second == {"event": "step", "step": 2, "loss": 0.25}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_numbers_that_are_not_in_json_become_null(events, value):
    Report(CHIEF, "logs").event("epoch", logs={"loss": value, "accuracy": 0.5})
    assert json.loads(events.read_text())["logs"] == {"loss": None, "accuracy": 0.5}
    assert "NaN" not in events.read_text()
    assert "Infinity" not in events.read_text()


def test_no_events_without_a_launcher(tmp_path, monkeypatch):
    monkeypatch.delenv("DISTLAUNCH_EVENTS", raising=False)
    monkeypatch.chdir(tmp_path)
    Report(CHIEF, "logs").event("step", step=1)
    assert list(tmp_path.iterdir()) == []


def test_only_the_chief_prints_and_writes_scalars(capsys, tmp_path):
    for role in (WORKER, CHIEF):
        report = Report(role, str(tmp_path / role.name))
        report.log(f"log of {role.name}")
        report.warn(f"warning of {role.name}")
        report.scalars(0, {"loss": 0.5})
    printed = capsys.readouterr()
    assert printed.out == "log of chief\n"
    assert printed.err == "trainer: warning: warning of chief\n"
    assert [path.name for path in tmp_path.iterdir()] == ["chief"]


def test_an_epoch_is_one_line():
    record = {"logs": {"loss": 0.12345, "val_loss": 2.0}, "examples_per_second": 12345.6}
    assert epoch_line(2, 5, record) == "epoch 2/5: loss 0.1235 val_loss 2.0000 (12,346 examples/s)"


def test_scalars_can_be_read_back(tmp_path):
    report = Report(CHIEF, str(tmp_path / "logs"))
    report.scalars(0, {"loss": 0.5, "accuracy": 0.25, "val_loss": 0.75})
    report.scalars(1, {"loss": 0.375, "accuracy": 0.5, "val_loss": 0.625})
    assert scalars(tmp_path / "logs" / "train") == [
        ("epoch_loss", 0, 0.5),
        ("epoch_accuracy", 0, 0.25),
        ("epoch_loss", 1, 0.375),
        ("epoch_accuracy", 1, 0.5),
    ]
    assert scalars(tmp_path / "logs" / "validation") == [
        ("epoch_loss", 0, 0.75),
        ("epoch_loss", 1, 0.625),
    ]


@pytest.mark.parametrize(
    ("rates", "median"),
    [([], None), ([5.0], 5.0), ([5.0, 90.0], 90.0), ([5.0, 100.0, 90.0, 101.0], 100.0)],
)
def test_the_summary_holds_the_facts_and_the_steady_rate(tmp_path, monkeypatch, rates, median):
    write_summary(str(tmp_path), {"epochs": []})
    assert json.loads((tmp_path / "summary.json").read_text())["restarts"] == 0
    monkeypatch.setenv("DISTLAUNCH_RESTARTS", "2")
    epochs = [{"examples_per_second": rate, "logs": {"loss": math.nan}} for rate in rates]
    write_summary(str(tmp_path), {"steps": np.int64(46), "epochs": epochs, "resumed_from": None})
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == {
        "steps": 46,
        "epochs": [{"examples_per_second": rate, "logs": {"loss": None}} for rate in rates],
        "resumed_from": None,
        "examples_per_second": median,
        "restarts": 2,
    }
