"""The metric file of a trial is that of Google's own package, cloudml-hypertune."""

from __future__ import annotations

import json
import math

import hypertune
import pytest

from distlaunch_trainer.errors import StorageError
from distlaunch_trainer.report.hypertune import MetricFile


@pytest.fixture
def path(monkeypatch, tmp_path):
    path = tmp_path / "trial/output.metrics"
    monkeypatch.setenv("CLOUD_ML_HP_METRIC_FILE", str(path))
    monkeypatch.setenv("CLOUD_ML_TRIAL_ID", "7")
    return path


def written_by_google(reports):
    tuner = hypertune.HyperTune()
    for step, metrics in reports:
        for name, value in metrics.items():
            tuner.report_hyperparameter_tuning_metric(name, value, step)


def written_by_trainer(reports):
    file = MetricFile()
    for step, metrics in reports:
        file.report(step, metrics)


@pytest.mark.parametrize("count", [1, 3, 200])
def test_the_file_is_that_of_cloudml_hypertune(path, monkeypatch, count):
    monkeypatch.setattr("time.time", lambda: 1525851440.123456)
    reports = [(10 * n, {"loss": 1 / (n + 1), "val_accuracy": 0.987}) for n in range(count)]
    written_by_google(reports)
    expected = path.read_bytes()
    path.unlink()
    written_by_trainer(reports)
    assert path.read_bytes() == expected
    assert expected.count(b"\n") == min(2 * count, 100)


def test_metrics_that_are_not_finite_are_left_out(path):
    written_by_trainer([(1, {"loss": math.nan, "mae": 0.5, "max": math.inf})])
    [entry] = map(json.loads, path.read_text().splitlines())
    assert (entry["mae"], entry["global_step"], entry["trial"]) == ("0.5", "1", "7")


def test_a_search_on_this_machine_gets_all_names(path, monkeypatch):
    monkeypatch.setenv("DISTLAUNCH_LOCAL_TRIAL", "1")
    written_by_trainer([(1, {"loss": math.nan, "mae": 0.5})])
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["loss"], second["mae"]) == ("nan", "0.5")


def test_nothing_is_written_outside_of_a_trial(path, monkeypatch):
    monkeypatch.delenv("CLOUD_ML_HP_METRIC_FILE")
    monkeypatch.delenv("CLOUD_ML_TRIAL_ID")
    written_by_trainer([(1, {"loss": 0.5})])
    assert not path.parent.exists()


def test_the_default_path_is_that_of_cloudml_hypertune(path, monkeypatch):
    monkeypatch.delenv("CLOUD_ML_HP_METRIC_FILE")
    assert (
        hypertune.HyperTune().metric_path == MetricFile()._path == "/tmp/hypertune/output.metrics"
    )


def test_a_file_that_cannot_be_written_is_named(path):
    path.parent.write_text("a file")
    with pytest.raises(StorageError, match=r"cannot write the metrics to .*output\.metrics: "):
        written_by_trainer([(1, {"loss": 0.5})])
