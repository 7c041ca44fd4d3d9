"""What a training step on two devices exchanges, by its graph.

There is no GPU to measure on. Number and size of the collectives are what it would wait for.
"""

import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SIGNALS = 3 * 4
"""The bytes of the control signals, which are exchanged once for all steps of an execution."""


@pytest.fixture(scope="module")
def traced(tensorflow):
    """What the program prints."""
    cases = (
        "convolutions",
        "xla",
        "xla_with_collectives",
        "xla_adamw",
        "two_packs",
        "embedding",
        "masked_loss",
        "accumulation",
        "last_step",
        "unknown_length",
        "bfloat16",
        "small_embedding",
        "squared_embedding",
        "xla_on_gpus",  # the last one, as TensorFlow takes CPUs for GPUs from here
    )
    result = tensorflow.run("training_graph", *cases, cwd=HERE, env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    assert result.code == 0, result.text
    return json.loads(result.out.splitlines()[-1])


@pytest.fixture
def graphs(traced):
    """The collectives of each case's training step, and what XLA compiles of it."""
    return traced["graphs"]


def sizes(graph):
    return [c["bytes"] for c in graph["collectives"] for _ in range(c["count"])]


def test_a_small_model_is_exchanged_at_once(graphs):
    """178 gradients and the loss; no moving statistics. Control signals come first."""
    assert sizes(graphs["convolutions"]) == [SIGNALS, 4 * (178 + 1)]


def test_the_end_of_data_of_unknown_length_is_exchanged_with_the_signals(graphs):
    """The rows of each replica are in the same collective, of which there is one for each step."""
    two_replicas = 2 * 4
    assert sizes(graphs["unknown_length"]) == [SIGNALS + two_replicas, 4 * (178 + 1)]


def test_eight_devices_get_batches_cut_in_parallel_and_agree_on_nothing_else(tensorflow):
    """The last of four batches of unknown number has fewer rows than there are devices."""
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    result = tensorflow.run("training_graph", "eight devices", cwd=HERE, env=environment)
    assert result.code == 0, result.text
    found = json.loads(result.out.splitlines()[-1])
    assert found["rows"] == [16, 16, 16, 4]
    assert found["agreements"] == 0
    assert found["is_finite"]
    # The first counts the rows of a batch, the second cuts it.
    assert found["operations"] == ["MapDataset", "ParallelInterleaveDatasetV4"]


def test_moving_statistics_are_averaged_when_they_are_read(traced):
    means = traced["executed"]
    assert means["before"] == [0.0, 0.75]
    assert means["after"] == [0.375, 0.375]


def test_a_large_model_is_exchanged_while_gradients_are_computed(graphs):
    """Five of six layers of 8 MB are 40 MB, the first pack of more than 32 MiB."""
    layer = 4 * 1414 * 1414
    assert sorted(sizes(graphs["two_packs"])) == [SIGNALS, layer + 4, 5 * layer]


def test_xla_compiles_forward_and_backward_pass_but_not_the_exchange(graphs):
    compiled = graphs["xla"]["xla"]
    assert {"Conv2D", "Conv2DBackpropFilter"} <= set(compiled)
    assert not [op for op in compiled if op.startswith(("Collective", "ResourceApply"))]
    assert sizes(graphs["xla"]) == sizes(graphs["convolutions"])
    assert graphs["convolutions"]["xla"] == []


def test_xla_compiles_no_model_with_collectives_in_its_forward_pass(graphs):
    assert graphs["xla_with_collectives"]["xla"] == []
    assert len(sizes(graphs["xla_with_collectives"])) > len(sizes(graphs["xla"]))


def test_xla_compiles_no_exchange_of_a_variable_where_all_devices_are_gpus(graphs):
    """TensorFlow exchanges it without a `merge_call` there."""
    assert graphs["xla_on_gpus"]["xla"] == []


def test_xla_compiles_the_optimizer_with_clipping_and_weight_decay(graphs):
    graph = graphs["xla_adamw"]
    optimizers = {"Sqrt", "Rsqrt", "RealDiv", "AssignSubVariableOp"}
    assert {"Sqrt", "RealDiv", "AssignSubVariableOp"} <= set(graph["xla"])
    assert optimizers.isdisjoint(graph["outside_xla"])


def test_collectives_are_of_types_that_nccl_takes(graphs):
    """NcclManager in TensorFlow's wheel; it has no bfloat16, which is exchanged as float32."""
    assert sizes(graphs["bfloat16"])[1:] == sizes(graphs["embedding"])[1:]
    types = {c["dtype"] for graph in graphs.values() for c in graph["collectives"]}
    assert types <= {"float32", "float64", "int32", "int64", "float16"}


def test_a_batch_does_not_leave_its_device_in_a_step(traced):
    """It is of uint8 and int16, and the step's time is taken."""
    assert "float32" in traced["executed"]["moved"]  # the loss
    assert {"uint8", "int16"}.isdisjoint(traced["executed"]["moved"])


def test_a_step_of_full_batches_has_no_branches(graphs):
    """A branch on a number that is on a GPU waits for it.

    Accumulation has its update in one, and TensorFlow's gather of gradient rows its padding.
    """
    gathers = {"embedding", "squared_embedding", "bfloat16"}
    full = graphs.keys() - {"accumulation", *gathers, "last_step"}
    assert {name for name in full if graphs[name]["branches"]} == set()


def test_of_an_embedding_only_rows_are_exchanged(graphs):
    """Not its 10,000 rows: the rows of the batch, their indices and how many there are."""
    reduced = [c["bytes"] for c in graphs["embedding"]["collectives"] if "Reduce" in c["op"]]
    gathered = [c["dtype"] for c in graphs["embedding"]["collectives"] if "Gather" in c["op"]]
    assert reduced == [SIGNALS, 4 * (5 * 16 + 1 + 1)]
    assert {"float32", "int32"} <= set(gathered)


def test_a_table_that_is_no_larger_than_what_a_batch_looks_up_is_exchanged_dense(graphs):
    """But not for optimizers that square the duplicate rows one by one."""
    assert sizes(graphs["small_embedding"]) == [SIGNALS, 4 * (40 * 16 + 5 * 16 + 1 + 1)]
    assert sizes(graphs["squared_embedding"]) == sizes(graphs["embedding"])


def test_the_divisor_of_a_masked_loss_is_exchanged_with_the_gradients(graphs):
    """21 weights, the loss and its divisor; so XLA compiles the forward and backward pass."""
    graph = graphs["masked_loss"]
    assert sizes(graph) == [SIGNALS, 4 * (21 + 2)]
    assert "MatMul" in graph["xla"]


def test_accumulated_gradients_are_exchanged_only_where_the_model_is_updated(graphs):
    """33 weights and the loss, in a branch of the step."""
    graph = graphs["accumulation"]
    assert sizes(graph) == [SIGNALS, 4 * (33 + 1)]
    assert graph["conditional"] == [4 * (33 + 1)]


def test_only_steps_with_empty_replicas_restore_statistics_and_metrics(graphs):
    """On each of two replicas: two moving statistics, and total and count of two metrics."""
    plain, last = graphs["convolutions"], graphs["last_step"]
    assert last["assignments"] - plain["assignments"] == 2 * (2 + 2 * 2)
    assert sizes(last) == sizes(plain)
    assert not last["branches"]  # a metric may exchange rows, with replicas that have none, too
