"""What Keras and TensorFlow really raise, in one line."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.distributed import explain
from trainer.distributed.errors import DataError, ModelError, TrainerError, gist


def raised(function) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        function()
    return caught.value


def test_gist_is_one_line_of_the_reason():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    wrong_shape = gist(raised(lambda: model(tf.zeros((1, 5)))))
    assert wrong_shape.startswith("Input 0 ")
    assert wrong_shape.endswith("received input with shape (1, 5)")

    @tf.function
    def broken(x):
        return x + no_such_name  # noqa: F821

    assert gist(raised(lambda: broken(tf.constant(1)))) == "name 'no_such_name' is not defined"
    of_operation = gist(raised(lambda: tf.io.parse_tensor(b"\xff", tf.int32)))
    assert "{{" not in of_operation
    assert "[Op:" not in of_operation
    error = RuntimeError("cannot merge\n\nArguments received by X.call():\n  • kwargs=<class 'x'>")
    assert gist(error) == "cannot merge"
    assert gist(ValueError("\n \n")) == "ValueError"


def failing_function_in_the_input():
    def fail(_):
        raise ValueError("no such picture")

    numbers = tf.data.Dataset.range(3).map(lambda n: tf.numpy_function(fail, [n], tf.int64))
    step(iter(numbers))


def damaged_record_in_the_input(path):
    path.write_bytes(b"not a record, and long enough")
    step(iter(tf.data.TFRecordDataset(str(path))))


@tf.function
def step(batches):
    return next(batches)


def test_failed_step_gives_the_reason_and_the_operation():
    loss = tf.function(keras.losses.SparseCategoricalCrossentropy(from_logits=True).call)
    with pytest.raises(TrainerError) as caught, explain.steps(pytest.fail):
        loss(tf.constant([1, 9]), tf.zeros((2, 5)))
    reason = "Received a label value of 9 which is outside the valid range of [0, 5)."
    assert str(caught.value).startswith(f"a step failed: InvalidArgumentError: {reason} (op ")
    assert str(caught.value).endswith("SparseSoftmaxCrossEntropyWithLogits)")


SEVERAL_REPLICAS = """Graph execution error:

Detected at node while/dense/Add defined at (most recent call last):
  File "/lib/python3.11/threading.py", line 1002, in _bootstrap

  File "{file}", line 6, in call

Detected at node while/dense/Add defined at (most recent call last):
<stack traces unavailable>
2 root error(s) found.
  (0) INVALID_ARGUMENT:  assertion failed: [too large] [x (while/IteratorGetNext:0) = ] [[0.9]]
\t [[{{{{node while/dense/Add}}}}]]
\t [[while/IteratorGetNext/_23]]
  (1) INVALID_ARGUMENT:  assertion failed: [too large]
\t [[{{{{node while/dense/Add}}}}]]
0 successful operations.
0 derived errors ignored. [Op:__inference__train_2061]"""


def test_failed_step_on_several_replicas_gives_the_user_s_line(tmp_path, monkeypatch):
    monkeypatch.setattr(explain, "_USERS", tmp_path / "trainer")
    text = SEVERAL_REPLICAS.format(file=tmp_path / "trainer/model.py")
    # Both lines with IteratorGetNext are about the step: no bad record is searched for.
    with pytest.raises(TrainerError) as caught, explain.steps(pytest.fail):
        raise tf.errors.InvalidArgumentError(None, None, text)
    assert str(caught.value) == (
        "a step failed: InvalidArgumentError: assertion failed: [too large] "
        "[x (while/IteratorGetNext:0) = ] [[0.9]] (trainer/model.py, line 6)"
    )


def test_bad_record_is_searched_for_only_if_the_input_failed(tmp_path):
    with pytest.raises(DataError, match=r"^record 3$"), explain.steps(lambda: "record 3"):
        damaged_record_in_the_input(tmp_path / "data")
    with pytest.raises(TrainerError) as caught, explain.steps(lambda: None):
        failing_function_in_the_input()
    assert "InvalidArgumentError: ValueError: no such picture (" in str(caught.value)


# As TensorFlow 2.21 raises it, after 10 seconds of trying.
OUT_OF_MEMORY = """Graph execution error:

Detected at node while/big/RandomUniform defined at (most recent call last):
  File "/lib/python3.11/site-packages/keras/src/layers/layer.py", line 1002, in __call__

OOM when allocating tensor with shape[3200,1677] and type float on \
/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc
\t [[{{node while/big/RandomUniform}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, add \
report_tensor_allocations_upon_oom to RunOptions for current allocation info. [Op:__inference_f_8]
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            OUT_OF_MEMORY,
            " on GPU:0: no room for a tensor of shape [3200,1677], type float"
            " (op big/RandomUniform)",
        ),
        (
            "Out of memory while trying to allocate 99 bytes.",
            ": Out of memory while trying to allocate 99 bytes.",
        ),
    ],
)
def test_out_of_memory_gives_tensor_device_and_remedy(text, reason):
    with pytest.raises(TrainerError) as caught, explain.steps(pytest.fail):
        raise tf.errors.ResourceExhaustedError(None, None, text)
    assert str(caught.value) == (
        f"a step failed: out of memory{reason}: use a smaller --batch-size or "
        "--global-batch-size, or a smaller batch() if training() returns a tf.data.Dataset"
    )


def test_invalid_argument_of_compile_names_compile_and_not_the_data():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", "mse", metrics=["acuracy"])
    x, y = np.zeros((3, 4), np.float32), np.zeros((3, 2), np.float32)
    with pytest.raises(ModelError) as caught, explain.model_build():
        model.compute_metrics(x, y, model(x))
    assert str(caught.value) == (
        "an argument of model.compile() in trainer/model.py is not valid: "
        "ValueError: Could not interpret metric identifier: acuracy"
    )
    with pytest.raises(ModelError) as caught, explain.model_build():
        model(x[:, 1:])
    assert str(caught.value).startswith("the model does not take what trainer/data.py gives: ")


def test_unexpected_error_names_the_option_for_a_traceback():
    assert explain.ending(KeyError("x")) == (
        "unexpected KeyError: 'x'; --debug shows where it comes from"
    )


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.UnavailableError(None, None, "Socket closed"),
        tf.errors.InternalError(None, None, "Collective ops is aborted by: peer restarted"),
    ],
)
def test_loss_of_a_peer_is_reported_after_the_peer_s_own_error(error, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(explain.time, "sleep", waits.append)

    def notice():
        raise error

    # No record is looked for, however many there are.
    with pytest.raises(type(error)) as caught, explain.steps(pytest.fail):
        explain.from_user("create_model()", notice)
    assert explain.ending(caught.value) == "this task lost its peers: another task ended"
    assert waits == [5.0]


def test_storage_that_cannot_be_reached_is_no_peer():
    def read():
        raise tf.errors.UnavailableError(
            None, None, "Error executing an HTTP request: libcurl code 6"
        )

    with (
        pytest.raises(TrainerError, match=r"^a step failed: UnavailableError: Error exec"),
        explain.steps(lambda: None),
    ):
        read()
