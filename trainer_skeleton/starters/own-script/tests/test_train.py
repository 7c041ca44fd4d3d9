"""A quick test: `python -m pytest tests` runs train.py on a little data, without a cluster."""

import pathlib
import runpy

SCRIPT = pathlib.Path(__file__).parents[1] / "train.py"


def test_the_script_trains(monkeypatch):
    monkeypatch.setattr("sys.argv", [str(SCRIPT), "--epochs", "2", "--examples", "200"])
    losses = runpy.run_path(str(SCRIPT), run_name="__main__")["model"].history.history["loss"]
    assert losses[1] < losses[0]
