"""The lines of a task: text, or JSON with a severity in the cloud."""

from __future__ import annotations

import json
import logging
import warnings

import pytest

from distlaunch_trainer.task import messages

TF_CONFIG = json.dumps(
    {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
)


@pytest.fixture
def in_cloud(monkeypatch):
    monkeypatch.setenv("CLOUD_ML_JOB_ID", "7")
    monkeypatch.delenv("DISTLAUNCH_EVENTS", raising=False)
    monkeypatch.setenv("TF_CONFIG", TF_CONFIG)


@pytest.fixture
def restored_logging():
    root = logging.getLogger()
    before = root.handlers.copy()
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = before


def test_lines_are_text_where_a_person_reads_them(monkeypatch, capsys):
    for variables in ({}, {"CLOUD_ML_JOB_ID": "7", "DISTLAUNCH_EVENTS": "/tmp/e"}):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        messages.info("epoch 1/2: loss 0.5", step=7)
        messages.warning("slow")
        messages.error("no data")
        messages.notice("waiting")
        shown = capsys.readouterr()
        assert shown.out == "epoch 1/2: loss 0.5\n"
        assert shown.err == "trainer: warning: slow\ntrainer: error: no data\nwaiting\n"


@pytest.mark.usefixtures("in_cloud")
def test_lines_in_the_cloud_have_severity_task_and_step(capsys):
    messages.info("epoch 1/2: loss 0.5", step=7)
    messages.warning("slow")
    messages.error("no data")
    messages.notice("waiting\nfor b")
    shown = capsys.readouterr()
    [result] = map(json.loads, shown.out.splitlines())
    assert result == {
        "severity": "INFO",
        "message": "epoch 1/2: loss 0.5",
        "task": "worker:1",
        "step": 7,
    }
    others = list(map(json.loads, shown.err.splitlines()))
    assert [(each["severity"], each["message"]) for each in others] == [
        ("WARNING", "trainer: warning: slow"),
        ("ERROR", "trainer: error: no data"),
        ("INFO", "waiting\nfor b"),
    ]


@pytest.mark.usefixtures("in_cloud")
def test_an_error_is_one_entry_with_the_step_and_the_traceback(capsys):
    messages.error("the loss is not finite at step 12 (nan)", trace="Traceback:\n  line 3\n")
    entry = json.loads(capsys.readouterr().err)
    assert (entry["severity"], entry["task"], entry["step"]) == ("ERROR", "worker:1", 12)
    last = "trainer: error: the loss is not finite at step 12 (nan)"
    assert entry["message"] == f"Traceback:\n  line 3\n{last}"


def test_the_format_can_be_chosen(monkeypatch, capsys):
    monkeypatch.setenv("DISTLAUNCH_LOG_FORMAT", "json")
    messages.info("a")
    assert json.loads(capsys.readouterr().out)["task"] == "chief"
    monkeypatch.setenv("CLOUD_ML_JOB_ID", "7")
    monkeypatch.setenv("DISTLAUNCH_LOG_FORMAT", "text")
    messages.info("a")
    assert capsys.readouterr().out == "a\n"


@pytest.mark.usefixtures("in_cloud", "restored_logging")
def test_logging_and_warnings_of_python_have_their_severity(capsys):
    messages.capture_logging()
    logging.getLogger("tensorflow").error("an error")
    logging.getLogger("some.library").warning("a warning")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("deprecated", stacklevel=1)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["severity"] for line in lines] == ["ERROR", "WARNING", "WARNING"]
    assert "deprecated" in lines[2]["message"]
