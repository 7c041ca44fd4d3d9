"""Which callbacks see what, and what a checkpoint holds of them."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from trainer.distributed.callbacks import Callbacks, _packed, _unpacked, templates
from trainer.distributed.errors import ModelError

kc = keras.callbacks


class Report:
    def __init__(self):
        self.reported = []

    def log(self, text):
        self.reported.append(text)

    warn = log


@pytest.fixture(scope="module")
def model():
    made = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder for what TensorBoard begins as it is made."""
    monkeypatch.chdir(tmp_path)


def made_of(model, *given, is_chief=True):
    report = Report()
    made = Callbacks(list(given), model, epochs=5, steps=3, is_chief=is_chief, report=report)
    return made, report.reported


class Counts(kc.Callback):
    def __init__(self, state=None):
        super().__init__()
        self.state = state

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state


class Silent(kc.Callback):
    pass


def test_only_the_chief_has_those_that_write(model, tmp_path):
    given = [kc.CSVLogger(tmp_path / "log.csv"), kc.TerminateOnNaN()]
    of_chief, _ = made_of(model, *given)
    of_worker, _ = made_of(model, *given, is_chief=False)
    assert of_chief.callbacks[:2] == given
    assert of_worker.callbacks[:1] == given[1:]
    assert of_chief.take_bad_losses
    assert of_worker.take_bad_losses


@pytest.mark.parametrize(
    ("callback", "batches", "test_batches"),
    [
        (kc.EarlyStopping, False, False),
        (lambda: kc.ModelCheckpoint("a.keras"), False, False),
        (lambda: kc.ModelCheckpoint("a.keras", save_freq=5), True, False),
        (lambda: kc.TensorBoard("logs", histogram_freq=1), False, False),
        (lambda: kc.TensorBoard("logs", update_freq=10), True, True),
        (lambda: kc.LambdaCallback(on_train_batch_end=print), True, False),
        (kc.TerminateOnNaN, True, False),
    ],
)
@pytest.mark.usefixtures("elsewhere")
def test_single_steps_only_for_those_that_see_them(model, callback, batches, test_batches):
    made, _ = made_of(model, callback())
    assert (made.see_batches, made.see_test_batches) == (batches, test_batches)


def test_callback_that_leaves_averages_where_weights_are_saved(model):
    with pytest.raises(ModelError, match="leave swap_on_epoch out"):
        made_of(model, kc.SwapEMAWeights(swap_on_epoch=True))
    made_of(model, kc.SwapEMAWeights())


def test_those_that_checkpoints_replace_are_left_out(model):
    made, told = made_of(model, kc.BackupAndRestore("backup"))
    assert told == ["BackupAndRestore is left out: every run resumes from its checkpoints"]
    assert [type(each) for each in made.callbacks] == [kc.History]


def test_state_that_no_checkpoint_can_hold_is_refused_with_its_place(model):
    made, _ = made_of(model, Counts({"open": object()}))
    with pytest.raises(
        ModelError, match=r"get_state\(\) of Counts in trainer/model.py gives a obj"
    ):
        made.state()


EPOCHS = [
    {"epoch": 1, "logs": {"loss": 3.0, "val_loss": 2.0}},
    {"epoch": 2, "logs": {"loss": 2.0, "val_loss": 2.5}},
]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own
def test_keras_and_own_callbacks_go_on(model):
    stopping = kc.EarlyStopping(patience=3, restore_best_weights=True)
    plateau = kc.ReduceLROnPlateau(patience=5)
    own, second = Counts({"n": 3, "mean": np.ones(2)}), Counts([1, None, "two"])
    before, _ = made_of(model, stopping, plateau, own, second)
    before.on_train_begin()
    for record in EPOCHS:
        before.on_epoch_end(record["epoch"] - 1, record["logs"])
    states, arrays = before.state()
    states = json.loads(json.dumps(states))
    assert [t.shape for t in templates(states)] == [a.shape for a in arrays]

    again = kc.EarlyStopping(patience=3, restore_best_weights=True)
    others = [kc.ReduceLROnPlateau(patience=5), Counts(), Counts()]
    after, told = made_of(model, again, *others)
    after.go_on(EPOCHS, states, arrays)
    assert (again.wait, again.best, again.best_epoch) == (1, 2.0, 0)
    for kept, value in zip(again.best_weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(kept, value)
    assert (others[0].wait, others[0].best) == (1, 2.0)
    np.testing.assert_array_equal(others[1].state["mean"], np.ones(2))
    assert others[2].state == [1, None, "two"]
    assert model.history.history == {"loss": [3.0, 2.0], "val_loss": [2.0, 2.5]}
    assert told == []


def test_those_that_do_not_tell_what_they_count_are_named(model):
    before, _ = made_of(model, Silent(), kc.TerminateOnNaN())
    after, told = made_of(model, Silent(), kc.TerminateOnNaN(), Counts())
    after.go_on(EPOCHS, *before.state())
    assert told == [
        "these callbacks start from scratch, no checkpoint holds their state: Silent, Counts; give "
        "them get_state() and set_state(state)"
    ]


def test_csv_goes_on_where_the_checkpoint_is(model, tmp_path):
    """Rows of epochs that are trained again are not there twice."""
    path = tmp_path / "log.csv"
    before, _ = made_of(model, kc.CSVLogger(path))
    before.on_train_begin()
    for epoch in range(3):
        before.on_epoch_end(epoch, {"loss": 1.0 / (epoch + 1)})
    before.on_train_end()
    after, _ = made_of(model, kc.CSVLogger(path))
    after.go_on(EPOCHS, [], [])
    after.on_epoch_end(2, {"loss": 0.25})
    after.on_train_end()
    lines = path.read_text().split()
    assert lines == ["epoch,loss,val_loss", "0,1.0,NA", "1,0.5,NA", "2,0.25,NA"]


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = arrays_of.arrays(st.sampled_from(["float32", "int64", "bool"]), arrays_of.array_shapes())
states = st.recursive(
    scalars | values, lambda s: st.lists(s) | st.dictionaries(st.text(), s), max_leaves=8
)


@given(states)
def test_states_come_back_as_they_were(state):
    arrays = []
    packed = json.loads(json.dumps(_packed(state, arrays)))
    assert [(t.shape, t.dtype) for t in templates(packed)] == [(a.shape, a.dtype) for a in arrays]
    assert_same(_unpacked(packed, arrays), state)


def assert_same(found, expected):
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    else:
        assert found == expected


def test_learning_rate_can_be_read_as_a_float(model):
    made_of(model)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.01)
