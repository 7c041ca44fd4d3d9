"""What Keras and TensorFlow really raise, in one line."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from distlaunch_trainer.errors import DataError, ModelError, TrainerError, summarize
from distlaunch_trainer.task import explain


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """The working directory, of which files are named; this file is none of them."""
    monkeypatch.chdir(tmp_path)


def raise_error(error):
    raise error


def step_error(step, *arguments, bad_record=pytest.fail):
    """Return what is reported of a step that fails."""
    with pytest.raises(TrainerError) as caught, explain.step_errors(bad_record):
        step(*arguments)
    return str(caught.value)


def model_error(build, *arguments):
    with pytest.raises(ModelError) as caught, explain.model_build():
        build(*arguments)
    return str(caught.value)


def test_summary_is_one_line_of_the_reason():
    with pytest.raises(tf.errors.OpError) as of_operation:
        tf.io.parse_tensor(b"\xff", tf.int32)
    assert "{{" not in summarize(of_operation.value)
    assert "[Op:" not in summarize(of_operation.value)
    error = RuntimeError("cannot merge\n\nArguments received by X.call():\n  • kwargs=<class 'x'>")
    assert summarize(error) == "cannot merge"
    assert summarize(ValueError("\n \n")) == "ValueError"


def test_failed_step_gives_the_reason_and_the_operation():
    loss = tf.function(keras.losses.SparseCategoricalCrossentropy(from_logits=True).call)
    text = step_error(loss, tf.constant([1, 9]), tf.zeros((2, 5)))
    assert text.startswith(
        "a step failed: the label 9 has no output: the model has 5, for the labels 0 to 4 (op "
    )
    assert text.endswith(": change the last layer, or the labels")


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


def test_failed_step_on_several_replicas_gives_the_user_s_line(tmp_path):
    text = SEVERAL_REPLICAS.format(file=tmp_path / "trainer/model.py")
    # Both lines with IteratorGetNext are about the step: no bad record is searched for.
    assert step_error(raise_error, tf.errors.InvalidArgumentError(None, None, text)) == (
        "a step failed: assertion failed: too large; x = [0.9] (trainer/model.py, line 6)"
    )


def test_a_failed_assertion_is_one_line_with_task_and_step():
    @tf.function
    def step(x):
        tf.debugging.assert_less(x, [2.0, 2.0], message="too [large]")
        return x

    def where():
        return "worker:0: step 7"

    with pytest.raises(TrainerError) as caught, explain.step_errors(lambda: None, where):
        step(tf.constant([1.0, 3.0]))
    assert str(caught.value).startswith(
        "worker:0: step 7 failed: assertion failed: too [large]; Condition x < y did not hold "
        "element-wise: x = 1 3; y = 2 2 (op "
    )


def test_bad_record_is_searched_for_only_if_the_input_failed(tmp_path):
    @tf.function
    def step(batches):
        return next(batches)

    def fail(_):
        raise ValueError("no such picture")

    (tmp_path / "data").write_bytes(b"not a record, and long enough")
    records = iter(tf.data.TFRecordDataset(f"{tmp_path}/data"))
    assert step_error(step, records, bad_record=lambda: "record 3") == "record 3"
    pictures = tf.data.Dataset.range(3).map(lambda n: tf.numpy_function(fail, [n], tf.int64))
    text = step_error(step, iter(pictures), bad_record=lambda: None)
    assert "InvalidArgumentError: ValueError: no such picture (" in text


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
ON_GPU = " on GPU:0: no room for a tensor of shape [3200,1677], type float (op big/RandomUniform)"
OF_HOST = "Out of memory while trying to allocate 99 bytes."


@pytest.mark.parametrize(
    ("text", "reason"), [(OUT_OF_MEMORY, ON_GPU), (OF_HOST, f": {OF_HOST}")], ids=["GPU", "host"]
)
def test_out_of_memory_gives_tensor_device_and_remedy(text, reason):
    assert step_error(raise_error, tf.errors.ResourceExhaustedError(None, None, text)) == (
        f"a step failed: out of memory{reason}: use a smaller batch (--batch-size "
        "or --global-batch-size, batch() of a tf.data.Dataset, batch_size of fit())"
    )


_OF_COMPILE = (
    "the loss, loss_weights or metrics of model.compile() in trainer/model.py do not fit the "
    "model's outputs and the labels: "
)


def test_invalid_argument_of_compile_names_compile_and_not_the_data():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", "mse", metrics=["acuracy"])
    x, y = np.zeros((3, 4), np.float32), np.zeros((3, 2), np.float32)
    assert model_error(model.compute_metrics, x, y, model(x)) == (
        f"{_OF_COMPILE}ValueError: Could not interpret metric identifier: acuracy"
    )
    model.compile("adam", "mse", ["mae"])  # the third argument is loss_weights
    assert model_error(model.compute_loss, x, y, model(x)).startswith(f"{_OF_COMPILE}ValueError: ")
    of_data = "the model does not take what trainer/data.py gives: "
    assert model_error(model, x[:, 1:]).startswith(of_data)


def test_errors_of_the_trainer_pass_unchanged():
    with pytest.raises(DataError, match=r"^no data$"):
        explain.from_user("training()", lambda: raise_error(DataError("no data")))


def test_unexpected_error_names_the_option_for_a_traceback():
    assert explain.final_message(KeyError("x")) == (
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
    # No record is looked for, however many there are.
    with pytest.raises(type(error)) as caught, explain.step_errors(pytest.fail):
        explain.from_user("create_model()", lambda: raise_error(error))
    assert explain.final_message(caught.value) == "this task lost its peers: another task ended"
    assert waits == [5.0]


def test_storage_that_cannot_be_reached_is_no_peer():
    error = tf.errors.UnavailableError(None, None, "Error executing an HTTP request: code 6")
    text = step_error(raise_error, error, bad_record=lambda: None)
    assert text.startswith("a step failed: UnavailableError: Error exec")
