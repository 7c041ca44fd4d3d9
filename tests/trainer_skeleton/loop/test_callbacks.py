"""Which callbacks see which calls, and the state of them in a checkpoint."""

from __future__ import annotations

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from distlaunch_trainer.errors import ModelError
from distlaunch_trainer.loop.callbacks import TRAIN_HOOKS, Callbacks, has_hook

kc = keras.callbacks


@pytest.fixture(scope="module")
def model():
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def list_of(model, *given):
    """Return the callbacks of a chief, and the list of what is logged."""
    logged = []
    report = SimpleNamespace(log=logged.append, warn=logged.append)
    return Callbacks(list(given), model, epochs=5, steps=3, writes=True, report=report), logged


class Counts(kc.Callback):
    def __init__(self, state=None):
        super().__init__()
        self.state = state

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state


SEEN = [
    # callback, whether it sees batches of the training, and of the validation
    (kc.EarlyStopping, False, False),
    (lambda: kc.ModelCheckpoint("a.keras"), False, False),
    (lambda: kc.ModelCheckpoint("a.keras", save_freq=5), True, False),
    (lambda: kc.TensorBoard("logs", histogram_freq=1), False, False),
    (lambda: kc.TensorBoard("logs", update_freq=10), True, True),
    (lambda: kc.LambdaCallback(on_train_batch_end=print), True, False),
    (kc.TerminateOnNaN, True, False),
]


def test_single_steps_only_for_those_that_see_them(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # TensorBoard creates its folder at once
    for callback, batches, test_batches in SEEN:
        callbacks, _ = list_of(model, callback())
        assert (callbacks.see_batches, callbacks.see_test_batches) == (batches, test_batches)


def test_a_backup_after_epochs_needs_no_single_steps():
    """It has the hook; for one that is needed, fit scripts exchange logs after each batch."""
    assert not has_hook(kc.BackupAndRestore("backup"), TRAIN_HOOKS)
    assert has_hook(kc.BackupAndRestore("backup", save_freq=5), TRAIN_HOOKS)


@pytest.mark.parametrize("base", [kc.ModelCheckpoint, kc.BackupAndRestore])
def test_a_subclass_of_one_that_saves_after_epochs_sees_batches_if_it_has_a_hook(base):
    hook = {"on_train_batch_end": lambda self, batch, logs=None: None}
    assert has_hook(type("WithHook", (base,), hook)("saved.keras"), TRAIN_HOOKS)
    assert not has_hook(type("WithoutHook", (base,), {})("saved.keras"), TRAIN_HOOKS)


def test_callback_that_leaves_averages_where_weights_are_saved(model):
    with pytest.raises(ModelError, match="leave swap_on_epoch out"):
        list_of(model, kc.SwapEMAWeights(swap_on_epoch=True))
    list_of(model, kc.SwapEMAWeights())


def test_state_that_no_checkpoint_can_hold_is_refused_with_its_place(model):
    callbacks, _ = list_of(model, Counts({"open": object()}))
    with pytest.raises(ModelError, match=r"get_state\(\) of Counts returned a object"):
        callbacks.state()


def list_for(model, path, *, writes=True):
    """Return the callbacks of a task that keeps the best model."""
    best = kc.ModelCheckpoint(path, "val_loss", save_best_only=True)
    report = SimpleNamespace(log=print, warn=print)
    return Callbacks([best], model, epochs=5, steps=3, writes=writes, report=report)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own
def test_the_best_model_is_kept_also_after_a_resume(model, tmp_path):
    path = tmp_path / "best.keras"

    def end_epochs(callbacks, first, losses):
        for epoch, loss in enumerate(losses, first):
            model.layers[0].bias.assign([loss])
            callbacks.on_epoch_begin(epoch)
            callbacks.on_epoch_end(epoch, {"loss": 0.0, "val_loss": loss})

    def kept():
        return float(keras.models.load_model(path).layers[0].bias[0])

    chief = list_for(model, path)
    chief.on_train_begin()
    end_epochs(chief, 0, [3.0, 1.0, 2.0])
    assert kept() == 1.0
    states, arrays = chief.state()
    restarted = list_for(model, path)
    restarted.resume([], json.loads(json.dumps(states)), arrays)
    end_epochs(restarted, 3, [1.5])
    assert kept() == 1.0
    end_epochs(restarted, 4, [0.5])
    assert kept() == 0.5
    path.unlink()
    worker = list_for(model, path, writes=False)
    worker.on_train_begin()
    end_epochs(worker, 0, [0.25])
    assert not path.exists()


EPOCHS = [
    {"epoch": 1, "logs": {"loss": 3.0, "val_loss": 2.0}},
    {"epoch": 2, "logs": {"loss": 2.0, "val_loss": 2.5}},
]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own
def test_keras_and_custom_callbacks_resume(model):
    stopping = kc.EarlyStopping(patience=3, restore_best_weights=True)
    plateau = kc.ReduceLROnPlateau(patience=5)
    own, second = Counts({"n": 3, "mean": np.ones(2)}), Counts([1, None, "two"])
    before, _ = list_of(model, stopping, plateau, own, second)
    before.on_train_begin()
    for record in EPOCHS:
        before.on_epoch_end(record["epoch"] - 1, record["logs"])
    states, arrays = before.state()
    states = json.loads(json.dumps(states))

    again = kc.EarlyStopping(patience=3, restore_best_weights=True)
    others = [kc.ReduceLROnPlateau(patience=5), Counts(), Counts()]
    after, logged = list_of(model, again, *others)
    after.resume(EPOCHS, states, arrays)
    assert (again.wait, again.best, again.best_epoch) == (1, 2.0, 0)
    for kept, value in zip(again.best_weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(kept, value)
    assert (others[0].wait, others[0].best) == (1, 2.0)
    np.testing.assert_array_equal(others[1].state["mean"], np.ones(2))
    assert others[2].state == [1, None, "two"]
    assert model.history.history == {"loss": [3.0, 2.0], "val_loss": [2.0, 2.5]}
    assert logged == []


def test_csv_continues_from_the_checkpoint(model, tmp_path):
    """Rows of epochs that are trained again are not there twice."""
    path = tmp_path / "log.csv"
    before, _ = list_of(model, kc.CSVLogger(path))
    before.on_train_begin()
    for epoch in range(3):
        before.on_epoch_end(epoch, {"loss": 1.0 / (epoch + 1)})
    before.on_train_end()
    after, _ = list_of(model, kc.CSVLogger(path))
    after.resume(EPOCHS, [], [])
    after.on_epoch_end(2, {"loss": 0.25})
    after.on_train_end()
    lines = path.read_text().split()
    assert lines == ["epoch,loss,val_loss", "0,1.0,NA", "1,0.5,NA", "2,0.25,NA"]
