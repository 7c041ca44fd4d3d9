"""A quick test: `python -m pytest tests` runs train.py for two epochs, without a cluster."""

import os
import pathlib
import runpy

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # before TensorFlow is imported

SCRIPT = pathlib.Path(__file__).parents[1] / "train.py"


def test_the_script_trains_and_saves(monkeypatch, tmp_path):
    script = runpy.run_path(str(SCRIPT))
    monkeypatch.setattr("sys.argv", ["train.py", "--epochs=2", f"--model={tmp_path}/saved"])
    losses = script["main"]().history["loss"]
    assert losses[1] < losses[0]
    assert (tmp_path / "saved/saved_model.pb").is_file()
