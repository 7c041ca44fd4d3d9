"""A user's `tf.data.Dataset` on several replicas: the weights of one replica."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ..conftest import environment_outside_clusters  # noqa: TID252
from .conftest import LAWS, arrays_in

pytestmark = pytest.mark.slow

ROWS = 41
KINDS = {3: ("ragged", "quantized")}
if LAWS:
    KINDS = dict.fromkeys((2, 3, 4), ("shuffled", "padded", "ragged", "bucketed", "quantized"))


@pytest.fixture(scope="module", params=KINDS)
def trained(request, tensorflow, tmp_path_factory):
    """A number of replicas, and the folder of its runs and of those of one replica."""
    folder = tmp_path_factory.mktemp(f"replicas-{request.param}")
    shutil.copy(Path(__file__).with_name("train_user_data.py"), folder)
    replicas = ("--replicas", "1", str(request.param))
    arguments = ("--folder", str(folder), *replicas, "--data", *KINDS[request.param])
    env = environment_outside_clusters()
    result = tensorflow.run("train_user_data", *arguments, cwd=folder, env=env)
    assert result.code == 0, result.text
    return request.param, folder


def test_weights_are_those_of_one_replica(trained):
    replicas, folder = trained
    for kind in KINDS[replicas]:
        together, alone = (arrays_in(folder / f"{kind}-{n}.npz") for n in (replicas, 1))
        for array, expected in zip(together, alone, strict=True):
            np.testing.assert_allclose(array, expected, rtol=0, atol=1e-12, err_msg=kind)


def test_each_epoch_has_as_many_rows(trained):
    replicas, folder = trained
    for kind in KINDS[replicas]:
        lines = (folder / f"{kind}-{replicas}.jsonl").read_text().splitlines()
        epochs = [event for event in map(json.loads, lines) if event["event"] == "epoch"]
        assert [epoch["examples"] for epoch in epochs] == [ROWS, ROWS], kind
