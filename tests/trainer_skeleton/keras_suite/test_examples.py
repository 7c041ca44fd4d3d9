"""The weights and the history of `fit`, for models and data as in the examples of Keras.

`make laws` trains all of them."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ..conftest import environment_outside_clusters  # noqa: TID252

if TYPE_CHECKING:
    from tensorflow_host import PythonHost

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent

NAMES = ["metrics_of_several_values", "autoencoder_of_only_x"]
if os.environ.get("DISTLAUNCH_TEST_LAWS"):  # make laws
    NAMES = re.findall(r"^@example\ndef (\w+)", (HERE / "examples.py").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def trained(tensorflow: PythonHost, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Weights and history of each example, with `fit` and with the trainer."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ("run_examples.py", "examples.py", "fit_adapter.py"):
        shutil.copy(HERE / name, folder)
    path = folder / "results.json"
    words = (f"--results={path}", *NAMES)
    result = tensorflow.run("run_examples", *words, cwd=folder, env=environment_outside_clusters())
    assert path.exists(), result.text
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_history_are_those_of_fit(trained, name) -> None:
    of_fit, of_trainer = (trained[who][name] for who in ("fit", "trainer"))
    assert "error" not in of_fit, of_fit["error"]
    assert "error" not in of_trainer, of_trainer["error"]
    for part in ("weights", "history"):
        assert of_trainer[part].keys() == of_fit[part].keys()
        for key, expected in of_fit[part].items():
            value = of_trainer[part][key]
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-12, err_msg=key)
