"""Bad input to the trainer: one line with the location and the remedy, and an exit code."""

import re

import pytest

pytestmark = pytest.mark.slow

MODEL, DATA = "trainer/model.py", "trainer/data.py"
TRAIN = "data/train-00000-of-00005.tfrecord"
SHAPE = "(-1, 8, 8, 1))"

# What is reported, the changed file, and what is replaced in it.
CASES = [
    ("parse failed on record 0 of", DATA, {'"label"': '"lable"'}),
    (
        "name 'no_such_name' is not defined (trainer/data.py, line 32)",
        DATA,
        {SHAPE: f"{SHAPE} + no_such_name"},
    ),
    (
        "create_model() in trainer/model.py returned int: end it with return model, a compiled",
        MODEL,
        {"return model": "return 3"},
    ),
    (
        "/kernel is NaN or infinite before the training: see its initializer, or where it was",
        MODEL,
        {"return model": "model.weights[0].assign(model.weights[0] / 0)\n    return model"},
    ),
    ("SyntaxError: invalid syntax (trainer/model.py, line", MODEL, {"model()": "model("}),
    (
        "callbacks have to be a list of Keras callbacks, got ",
        MODEL,
        {"return []": "return keras.callbacks.TerminateOnNaN()"},
    ),
]


def assert_one_error(result, message):
    errors = [line for line in result.err.splitlines() if line.startswith("trainer: error: ")]
    assert len(errors) == 1, result.text
    assert message in errors[0]
    assert "Traceback" not in result.text


@pytest.mark.parametrize(("message", "name", "changes"), CASES, ids=range(len(CASES)))
def test_one_line_with_the_error(project, message, name, changes):
    for old, new in changes.items():
        project.replace(name, old, new)
    assert_one_error(project.trainer("--epochs=1", "--job-dir=job", code=1), message)


WORDS_MODEL = """\
import keras

def create_model():
    layers = keras.layers
    model = keras.Sequential([layers.Embedding(9, 4), layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""
WORDS_DATA = """\
import tensorflow as tf

WORDS = tf.range(90, dtype=tf.int64)[:, tf.newaxis] // 9

def checked(word):
    CHECK
    return word, tf.ones([1])

def training():
    return tf.data.Dataset.from_tensor_slices(WORDS).map(checked).batch(10)
"""


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("pass", " failed: InvalidArgumentError: indices[1,0] = 9 is not in [0, 9) (op "),
        (
            "tf.debugging.assert_less(word, tf.constant(9, tf.int64), 'unknown word')",
            ": reading the data failed: assertion failed: unknown word; Condition x < y did not ",
        ),
        (
            "tf.numpy_function(lambda w: w if w[0] < 9 else [][0], [word], tf.int64)",
            "reading the data failed: UnknownError: IndexError: list index out of range (op ",
        ),
    ],
    ids=["embedding", "assertion", "Python"],
)
def test_reason_of_an_operation_that_fails_on_the_last_batch(new_project, check, message):
    project = new_project(WORDS_MODEL, WORDS_DATA.replace("CHECK", check))
    result = project.local("job", "--workers", "1", "--", "--epochs=1", code=1)
    errors = [line for line in result.out.splitlines() if "trainer: error: " in line]
    assert len(errors) == 1, result.text
    assert message in errors[0]
    assert "Traceback" not in result.text


LOGARITHM_MODEL = """\
import keras
import tensorflow as tf

class Logarithm(keras.layers.Layer):
    def call(self, x):
        return tf.math.log(x - 3.0)

def create_model():
    model = keras.Sequential([keras.layers.Input((1,)), Logarithm(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.summary()
    return model
"""
POSITIVE_DATA = """\
import numpy as np
from distlaunch_trainer import Arrays

def training():
    x = 4 + np.arange(20.0)
    x[13] = 2  # of the chief or the worker; its logarithm is NaN
    return Arrays(x[:, np.newaxis], x[:, np.newaxis])
"""


def test_the_operation_step_and_line_of_a_nan_and_one_summary(new_project):
    project = new_project(LOGARITHM_MODEL, POSITIVE_DATA)
    options = ("--epochs=1", "--global-batch-size=4", "--shuffle=0", "--check-numerics")
    result = project.local("numerics", "--workers", "2", "--", *options, code=1)
    errors = [line for line in result.out.splitlines() if "trainer: error: " in line]
    assert re.search(
        r"(chief|worker:0): step 4 failed: NaN in the output of Log "
        r"\(sequential_1/logarithm_1/Log\) \(trainer/model\.py, line 6\)$",
        "\n".join(errors),
        re.MULTILINE,
    ), result.text
    assert result.out.count('| Model: "sequential"') == 1
    assert 'chief    | Model: "sequential"' in result.out


def test_job_folder_that_cannot_be_written(project):
    result = project.trainer("--job-dir=/proc/none", code=1)
    assert_one_error(result, "cannot write the folder /proc/none")


def test_debug_of_the_launcher_shows_the_traceback(project):
    project.replace(MODEL, "    model.compile(", "    dict(")
    result = project.run("distlaunch", "--debug", "local", "--workers", "1")
    assert result.code == 1
    assert "Traceback (most recent call last)" in result.out
    assert "is not compiled: end it with model.compile(" in result.out


def test_rows_that_differ_between_tasks_are_refused_with_the_line(project):
    project.write(
        "trainer/data.py",
        "import numpy as np\n"
        "def training():\n"
        "    labels = np.random.default_rng().integers(10, size=60)\n"
        "    while True:\n"
        "        yield np.zeros((60, 8, 8, 1)), labels\n",
    )
    result = project.local("job", "--", "--steps-per-epoch=2", code=1)
    problem = "the targets of the first batch of the generator of trainer/data.py differ on"
    first_task = r"(chief    \| .* worker:0|worker:0 \| .* chief)"  # the other one may be stopped
    text = result.text.replace(problem, "")
    assert re.search(rf"{first_task}: all tasks must read the same", text), result.text
    assert f"trainer: error: {problem}" in result.text
    assert "see trainer/data.py, line 3 (no seed)" in result.text


def test_damaged_record_is_named_by_the_cluster(project):
    path = project.folder / TRAIN
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(data)
    result = project.local("job", "--workers", "2", code=1)
    assert f"{TRAIN} is damaged at record 0 (byte 0)" in result.text
    assert re.search("(chief|worker:0) failed with exit code 1", result.text)  # both read it
    assert "Traceback" not in result.text


def test_full_disk(project, small_disk):
    (small_disk / "file").write_bytes(bytes(700 << 10))
    result = project.trainer("--epochs=1", f"--job-dir={small_disk}/job", code=1)
    assert_one_error(result, "cannot write")
    assert "No space left on device" in result.err
    assert not list(small_disk.rglob("*partial*"))


def test_an_error_of_all_tasks_is_printed_once(project):
    result = project.local("job", "--workers", "7", "--", "--epochs=1", code=1)
    assert result.out.count("7 replicas do not divide the 240 logical shards") == 1, result.text
    assert "chief    | trainer: error: 7 replicas do not" in result.out
