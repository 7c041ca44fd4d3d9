"""`fit` of a program that runs already, in one task."""

from __future__ import annotations

import json

import pytest

from distlaunch_trainer import distributed_fit

TWICE = """
import keras
import numpy as np
import distlaunch_trainer
from distlaunch_trainer.errors import TrainerError

x = np.arange(8.0)[:, None]
with distlaunch_trainer.distributed_fit(job_dir="job"):
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, x, epochs=2, verbose=0)
try:
    with distlaunch_trainer.distributed_fit(job_dir="job"):
        pass
except TrainerError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_process_trains_once(run_code, tmp_path):
    result = run_code(TWICE)
    assert result.code == 0, result.text
    assert "this one has called it: call it in a new process" in result.out
    summary = json.loads((tmp_path / "job/summary.json").read_text())
    assert (summary["replicas"], len(summary["epochs"])) == (1, 2)
    assert (tmp_path / "job/model/model.keras").is_file()


def test_an_option_of_the_training_loop_is_refused():
    with pytest.raises(TypeError, match=r"no option epochs: .* takes job_dir, resume, "):
        distributed_fit(epochs=3).__enter__()
