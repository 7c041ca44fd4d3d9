"""Learning rates by options: a function of the step, on any cluster and after a resume."""

from __future__ import annotations

from dataclasses import replace

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import ModelError, PlanError
from distlaunch_trainer.keras_compat import keras_optimizers
from distlaunch_trainer.model.learning_rate import check_callbacks, rates_of_last_step, set_rates
from distlaunch_trainer.report.report import Report, epoch_line, epoch_record
from distlaunch_trainer.saving.model_files import save_model
from distlaunch_trainer.training_state import RunOptions

schedules = keras.optimizers.schedules

RUN = RunOptions(
    examples=100, global_batch=10, shards=240, seed=0, shuffle=0, steps_per_epoch=10,
    precision="float32",
)  # fmt: skip
RATES = {
    "a number": lambda: 0.1,
    "cosine": lambda: schedules.CosineDecay(0.1, 30),
    "steps": lambda: schedules.PiecewiseConstantDecay([9, 18], [0.1, 0.01, 0.001]),
    "exponential": lambda: schedules.ExponentialDecay(0.1, 7, 0.5),
}


def compiled(optimizer):
    dense = keras.layers.Dense(1, kernel_initializer="zeros")  # so that each epoch improves it
    model = keras.Sequential([keras.layers.Input((1,)), dense])
    model.compile(optimizer, "mse")
    return model


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(RATES)), st.sampled_from([0, 1, 4]), st.floats(0, 3), st.integers(1, 20)
)
def test_the_rate_is_a_function_of_the_step(name, scale, epochs, steps_per_epoch):
    """As docs/do/learning-rate.md has it."""
    model = compiled(keras.optimizers.SGD(RATES[name]()))
    options = replace(RUN, rate_scale=scale, warmup_epochs=epochs, steps_per_epoch=steps_per_epoch)
    set_rates(model, options, print)
    warmup = max(1, round(epochs * steps_per_epoch))
    given = RATES[name]()
    for step in (0, 1, 8, 35):
        model.optimizer.iterations.assign(step)
        rate = given if isinstance(given, float) else float(given(step))
        expected = rate * max(1, scale) * min(1, (step + 1) / warmup)
        assert float(model.optimizer.learning_rate) == pytest.approx(expected, rel=1e-5)


def test_a_callback_that_sets_the_rate_is_refused():
    with pytest.raises(ModelError, match="ReduceLROnPlateau sets the learning rate, and --warmup"):
        check_callbacks([keras.callbacks.ReduceLROnPlateau()])


def test_every_optimizer_is_warmed_up_to_its_own_rate():
    model = compiled(keras.optimizers.SGD(0.5))
    model.critic_optimizer = keras.optimizers.Adam(0.25)
    lines = []
    options = replace(RUN, rate_scale=4, warmup_epochs=1.0, learning_rate=0.125)
    set_rates(model, options, lines.append)
    assert lines == [
        "learning rate of optimizer: 0.125 x 4 replicas = 0.5, warm-up over 1 epoch",
        "learning rate of critic_optimizer: 0.25 x 4 replicas = 1, warm-up over 1 epoch",
    ]
    assert float(model.optimizer.learning_rate) == pytest.approx(0.05)
    assert float(model.critic_optimizer.learning_rate) == pytest.approx(0.1)


def test_a_schedule_of_the_model_is_scaled_and_not_replaced():
    lines = []
    model = compiled(keras.optimizers.SGD(schedules.CosineDecay(0.1, 10)))
    with pytest.raises(ModelError, match="--learning-rate cannot replace the schedule"):
        set_rates(model, replace(RUN, rate_scale=2, learning_rate=0.5), print)
    set_rates(model, replace(RUN, rate_scale=2, warmup_epochs=1.5), lines.append)
    line = "learning rate of optimizer: CosineDecay x 2 replicas, warm-up over 1.5 epochs"
    assert lines == [line]
    assert rates_of_last_step(model) == {"learning_rate": pytest.approx(0.2 / 15)}


def test_a_rate_that_is_a_function_is_refused():
    model = compiled(keras.optimizers.SGD(lambda: 0.1))
    with pytest.raises(ModelError, match="rate of optimizer is neither a number nor a schedule"):
        set_rates(model, replace(RUN, warmup_epochs=1.0), print)


def test_a_warm_up_over_epochs_of_unknown_length_is_refused():
    with pytest.raises(PlanError, match="how many steps an epoch has is unknown"):
        set_rates(compiled("sgd"), replace(RUN, warmup_epochs=1.0, steps_per_epoch=None), print)


@keras.saving.register_keras_serializable("test")
class Halved(schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.5 ** keras.ops.cast(step, "float32")

    def get_config(self):
        return {}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(
    ("rate", "kind"),
    [
        (0.001, schedules.ExponentialDecay),  # which is constant
        (schedules.CosineDecay(0.001, 50), schedules.CosineDecay),
        (Halved(), Halved),
    ],
    ids=["number", "schedule", "own"],
)
def test_a_saved_model_loads_without_this_package(tmp_path, rate, kind):
    model = compiled(keras.optimizers.Adam(rate))
    set_rates(model, replace(RUN, rate_scale=2, warmup_epochs=1.0), print)
    x = np.ones((4, 1))
    assert len(model.optimizer.variables) == 1  # TensorFlow compares the list with the one before
    path = tmp_path / "best.keras"
    best = keras.callbacks.ModelCheckpoint(path, "loss", save_best_only=True)
    model.fit(x, x, epochs=3, verbose=0, callbacks=[best])
    last = float(rate(2)) if kind is not schedules.ExponentialDecay else rate
    # Of the third of ten steps.
    assert rates_of_last_step(model) == {"learning_rate": pytest.approx(2 * last * 0.3, rel=1e-4)}
    files = save_model(model, str(tmp_path), Report(Role(), ""))
    assert files == ["model.keras", "saved_model.pb"]
    for name in ("model.keras", "best.keras"):
        loaded = keras.models.load_model(tmp_path / name)
        assert loaded.optimizer.iterations == 3
        assert type(keras_optimizers.learning_rate_of(loaded.optimizer)) is kind


@pytest.mark.parametrize(
    ("rates", "shows", "expected"),
    [
        ([0.1, 0.1], False, ""),
        ([0.1, 0.05], False, " learning_rate 0.05"),
        ([0.1], True, " learning_rate 0.1"),
    ],
)
def test_the_line_of_an_epoch_has_a_rate_that_changes(rates, shows, expected):
    history = [
        {"epoch": n + 1, "learning_rate": rate, "examples_per_second": 7.0, "logs": {"loss": 0.5}}
        for n, rate in enumerate(rates)
    ]
    line = epoch_line(9, history, shows_rate=shows)
    assert line == f"epoch {len(rates)}/9: loss 0.5000{expected} (7 examples/s)"


class WithoutRate(keras.optimizers.SGD):
    learning_rate = property(lambda _: None, lambda *_: None)


@pytest.mark.skipif(not hasattr(keras.optimizers, "MultiOptimizer"), reason="since Keras 3.15")
def test_each_optimizer_of_a_multi_optimizer_has_its_rate():
    one = keras.optimizers.Adam(0.001, name="one")
    rest = keras.optimizers.SGD(0.1, name="rest")
    optimizers = keras.optimizers.OptimizerMap(rest, {"a/.*": one})
    model = compiled(keras.optimizers.MultiOptimizer(optimizers))
    set_rates(model, replace(RUN, rate_scale=2), print)
    rates = rates_of_last_step(model)
    assert rates == pytest.approx({"learning_rate/one": 0.002, "learning_rate/rest": 0.2})
    figures = {"examples": 10, "seconds": 1.0}
    history = [epoch_record(0, 1, {}, rates={"learning_rate/one": 1.0}, **figures)]
    history += [epoch_record(1, 2, {}, rates=rates, **figures)]
    line = epoch_line(2, history, shows_rate=False)
    assert "learning_rate/one 0.002 learning_rate/rest 0.2" in line
    with pytest.raises(ModelError, match=r"several optimizers.* gives MultiOptimizer"):
        set_rates(model, replace(RUN, rate_scale=2, learning_rate=0.1), print)


def test_an_optimizer_without_a_rate_that_can_be_read_has_none():
    assert rates_of_last_step(compiled(WithoutRate())) == {}
