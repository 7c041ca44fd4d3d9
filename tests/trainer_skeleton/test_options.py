from __future__ import annotations

import pytest

import distlaunch
import distlaunch_trainer
from distlaunch_trainer import options

LEARNING_RATE = "argument --learning-rate: must be a number above 0, got"
BAD_OPTIONS = {
    "--epochs 0": "argument --epochs: must be 1 or more, got 0",
    "--epochs 1.5": "argument --epochs: invalid whole number value: '1.5'",
    "--epochs 2147483648": "argument --epochs: must be 2147483647 or less",
    "--batch-size 8 --global-batch-size 8": "not allowed with",
    "--learning-rate nan": f"{LEARNING_RATE} nan",
    "--learning-rate=-1e-3": f"{LEARNING_RATE} -1e-3",
    "--seed 4294967296": "argument --seed: must be 4294967295 or less, got 4294967296",
    "--shards 0": "argument --shards: must be 1 or more, got 0",
    "--precision float8": "argument --precision: invalid choice: 'float8'",
    "--checkpoint-every -1": "argument --checkpoint-every: must be 0 or more, got -1",
    "--epoch 1": "unrecognized arguments: --epoch 1",
}


@pytest.mark.parametrize(("words", "message"), BAD_OPTIONS.items())
def test_a_bad_option_is_one_line(words, message, capsys, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(SystemExit) as end:
        options.parser().parse_args(words.split())
    printed = capsys.readouterr()
    assert end.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("trainer: error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ('{"task": {"type": "master", "index": 0}}', []),
        ('{"task": {"type": "worker", "index": 0}}', [5.0]),
        ("[]", []),
        ("{", []),
    ],
)
def test_a_worker_lets_the_chief_report_a_bad_option_first(monkeypatch, capsys, config, seconds):
    slept = []
    monkeypatch.setattr("distlaunch_trainer.options.time.sleep", slept.append)
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(SystemExit) as end:
        options.parser().parse_args(["--epochs", "0"])
    assert end.value.code == 2
    assert slept == seconds
    assert capsys.readouterr().err.startswith("trainer: error: argument --epochs: must be 1")


def test_the_trainer_has_the_version_of_the_launcher_that_brings_it():
    assert distlaunch_trainer.__version__ == distlaunch.__version__


def test_help_lists_all_options_without_tensorflow(python):
    task = python("-X", "importtime", "-m", "trainer.task", "--help")
    assert task.returncode == 0
    for option in ("--epochs", "--global-batch-size", "--precision", "--no-resume", "--allow-cpu"):
        assert option in task.stdout
    imported = {line.rpartition("|")[2].strip() for line in task.stderr.splitlines()}
    assert "argparse" in imported
    assert not {"tensorflow", "keras", "numpy"} & imported


def test_a_bad_cluster_is_one_line(python):
    task = python("-m", "trainer.task", TF_CONFIG="{")
    assert task.returncode == 1
    assert "trainer: error: TF_CONFIG is not JSON" in task.stderr
    assert "Traceback" not in task.stderr
