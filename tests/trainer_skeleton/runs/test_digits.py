"""The main job: chief + 2 workers on the digits, with an audit."""

import keras
import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.slow


def test_chief_and_two_workers_train_one_good_model_on_each_example_once(project):
    result = project.local("job", "--workers", "3", "--audit")
    assert "each of 1,437 examples was seen exactly once in each of 8 epochs" in result.out
    summary = project.summary("job")
    assert summary["tasks"] == ["chief", "worker:0", "worker:1"]
    assert (summary["global_batch"], summary["steps_per_epoch"]) == (96, 15)
    assert summary["examples_per_epoch"] == 1437
    assert summary["restarts"] == 0
    epochs = summary["epochs"]
    assert len(epochs) == 8
    assert [epoch["examples"] for epoch in epochs] == [1437] * 8
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
