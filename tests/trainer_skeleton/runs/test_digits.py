"""The main job: chief + 2 workers on the digits, each example counted."""

import keras
import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.slow

# A metric that counts, over all workers, how often each example was trained on in an epoch.
COUNTING_MODEL = '''
import keras
import tensorflow as tf

from trainer.model_of_digits import create_model as create


class WrongCounts(keras.metrics.Metric):
    """How many of the examples were not seen exactly once."""

    def __init__(self, examples, name):
        super().__init__(name=name)
        self.counts = self.add_weight(shape=(examples,), initializer="zeros", name="counts")

    def update_state(self, y, predicted, sample_weight=None):
        rows = tf.cast(y[:, 1], tf.int32)
        self.counts.assign_add(tf.math.bincount(
            rows, minlength=self.counts.shape[0], maxlength=self.counts.shape[0],
            dtype=tf.float32))

    def result(self):
        wrong = tf.reduce_sum(tf.cast(self.counts.value != 1.0, tf.float32))
        seen = tf.reduce_sum(self.counts.value)
        return tf.where(seen > 1000.0, wrong, 0.0)


def create_model():
    model = create()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def accuracy(y, predicted):
        return keras.metrics.sparse_categorical_accuracy(y[:, 0], predicted)

    model.compile(model.optimizer, lambda y, p: loss(y[:, 0], p),
                  metrics=[accuracy, WrongCounts(1437, "wrong")])
    return model
'''
COUNTING_DATA = """
import tensorflow as tf

from trainer.data_of_digits import DATA, parse as parse_digits
from trainer.distributed.input import Records

def _numbered(part):
    files = sorted(tf.io.gfile.glob(f"{DATA}/{part}-*.tfrecord"))
    records = list(tf.data.TFRecordDataset(files).as_numpy_iterator())
    assert len(set(records)) == len(records)
    numbers = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(records, list(range(len(records))), tf.string,
                                            tf.int64), -1)

    def parse(records):
        images, labels = parse_digits(records)
        return images, tf.stack([labels, numbers.lookup(records)], 1)

    return Records(f"{DATA}/{part}-*.tfrecord", parse_batch=parse)

def training():
    return _numbered("train")

def validation():
    return _numbered("validation")
"""


def test_chief_and_two_workers_train_one_good_model_on_each_example_once(project):
    for room, text in (("model", COUNTING_MODEL), ("data", COUNTING_DATA)):
        own = project.folder / f"trainer/{room}.py"
        own.rename(project.folder / f"trainer/{room}_of_digits.py")
        project.write(f"trainer/{room}.py", text)

    result = project.local("job", "--workers", "3")

    assert result.code == 0, result.text
    summary = project.summary("job")
    assert summary["tasks"] == ["chief", "worker:0", "worker:1"]
    assert (summary["global_batch"], summary["steps_per_epoch"]) == (96, 15)
    assert summary["examples_per_epoch"] == 1437
    assert summary["restarts"] == 0
    epochs = summary["epochs"]
    assert len(epochs) == 8
    assert [epoch["examples"] for epoch in epochs] == [1437] * 8
    assert [epoch["logs"]["wrong"] for epoch in epochs] == [0.0] * 8
    assert max(epoch["logs"]["val_accuracy"] for epoch in epochs) >= 0.95
    assert epochs[-1]["logs"]["val_accuracy"] >= 0.94
    _check_models(project)
    assert f"model               {summary['model']}" in result.out
    for task in ("chief", "worker-0", "worker-1"):
        events = project.events("job", task)
        assert next(e["event"] for e in events) == "ready"
        assert events[-1]["event"] == "end"
        assert [e["step"] for e in events if e["event"] == "epoch"] == [15 * n for n in range(1, 9)]


def _check_models(project):
    """One model, loadable by plain Keras and by plain TensorFlow, with equal predictions."""
    folder = project.folder / "job/model"
    assert [p.name for p in (project.folder / "job").rglob("*.keras")] == ["model.keras"]
    model = keras.models.load_model(folder / "model.keras", compile=False)
    images = np.random.default_rng(0).random((5, 8, 8, 1), np.float32)
    predicted = model(images).numpy()
    exported = tf.saved_model.load(str(folder))
    np.testing.assert_allclose(predicted, exported.serve(images).numpy(), rtol=1e-5, atol=1e-5)
    assert predicted.shape == (5, 10)
