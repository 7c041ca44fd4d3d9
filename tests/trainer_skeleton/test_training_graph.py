"""What a training step on two devices exchanges, by its graph.

There is no GPU to measure on. Number and size of the collectives are what it would wait for.
"""

import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def graphs(tensorflow):
    """The collectives of each case's training step."""
    cases = "convolutions", "two_packs", "embedding", "accumulation", "masked_loss"
    result = tensorflow.run("training_graph", *cases, cwd=HERE, env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    assert result.code == 0, result.text
    return json.loads(result.out.splitlines()[-1])


def sizes(collectives):
    return [each["bytes"] for each in collectives for _ in range(each["count"])]


def test_a_small_model_is_exchanged_at_once(graphs):
    """Gradients, statistics, loss and control signals, all of known size."""
    assert len(sizes(graphs["convolutions"])) == 1
    assert min(sizes(graphs["convolutions"])) > 0


def test_a_large_model_is_exchanged_while_gradients_are_computed(graphs):
    """Five of six layers of 8 MB are 40 MB, the first pack of more than 32 MiB."""
    layer = 4 * 1414 * 1414
    assert sorted(sizes(graphs["two_packs"])) == [layer + 12, 5 * layer]
