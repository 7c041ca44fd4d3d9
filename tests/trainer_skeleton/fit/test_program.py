"""What is known of a script before it runs."""

from __future__ import annotations

import sys

import pytest

from distlaunch_trainer.errors import TrainerError
from distlaunch_trainer.fit.__main__ import parser
from distlaunch_trainer.fit.program import Program
from distlaunch_trainer.fit.remedies import remedy
from distlaunch_trainer.task.explain import script_errors


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("sys.argv", [*sys.argv])
    (tmp_path / "plain").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('import os\nos.environ["TF_USE_LEGACY_KERAS"] = "1"\nimport tensorflow as tf', "1"),
        ('import os\nos.environ.setdefault("TF_USE_LEGACY_KERAS", "true")', "true"),
        ('import os\nos.environ["TF_USE_LEGACY_KERAS"] = "0"\nimport tf_keras', "0"),
        ("import tf_keras as keras", "1"),
        ("from tf_keras import layers", "1"),
        ("import keras\nimport tf_keras", None),
        ("import keras\nprint('TF_USE_LEGACY_KERAS', '1')", None),
        ("import tensorflow as tf", None),
        ("def (", None),
    ],
)
def test_which_keras_a_script_is_for(project, source, expected):
    (project / "train.py").write_text(source)
    for words in (["train.py"], ["-m", "train", "--epochs=1"]):
        assert Program.of(parser().parse_args(words)).legacy_keras() == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian.py"], "trian.py: no such file; the working directory is"),
        (["-m", "trainer"], "ImportError: No module named trainer$"),
        (["-m", "trainer.tsk"], "ImportError: Error while finding .*: No module named 'trainer'"),
        (["-m", "plain"], "'plain' is a package and cannot be directly executed$"),
    ],
)
def test_a_program_that_is_not_there(words, message):
    with pytest.raises(TrainerError, match=message), script_errors(remedy):
        Program.of(parser().parse_args(words)).run()


def test_options_before_a_script():
    """`--step-timeout` is what a task names that ends because no step has."""
    options = parser().parse_args(["--step-timeout=5", "--checkpoint-every=3", "train.py", "--x=1"])
    assert (options.step_timeout, options.checkpoint_every, options.args) == (5, 3, ["--x=1"])
    for option in ("--step-timeout=-1", "--checkpoint-every=-1"):
        with pytest.raises(SystemExit):
            parser().parse_args([option, "train.py"])
