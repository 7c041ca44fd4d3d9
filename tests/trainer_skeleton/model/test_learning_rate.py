"""Learning rates by options: a function of the step, on any cluster and after a resume."""

from __future__ import annotations

import math
from dataclasses import replace

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import ModelError, PlanError
from distlaunch_trainer.model.learning_rate import (
    RateOptions,
    WarmUp,
    build_schedule,
    check_callbacks,
    rates_of_last_step,
    resolve_rate_options,
    restore_schedules,
    set_rates,
)
from distlaunch_trainer.options import Settings
from distlaunch_trainer.report.report import Report, epoch_line, epoch_record
from distlaunch_trainer.saving.model_files import save_model
from distlaunch_trainer.training_state import RunOptions

RUN = RunOptions(
    examples=100, global_batch=10, shards=240, seed=0, shuffle=0, steps_per_epoch=10,
    precision="float32",
)  # fmt: skip
DEFAULT_RATES = {"cosine": 0.0, "step": 0.1, "exponential": 0.1}


def expected_rate(t, base, o, epochs, steps_per_epoch):
    """Return the rate as docs/do/learning-rate.md has it."""
    warmup = max(1, round(o.warmup_epochs * steps_per_epoch)) if o.warmup_epochs else 0
    ramp = min(1.0, (t + 1) / warmup) if warmup else 1.0
    if o.decay is None:
        return base * ramp
    decay_epochs = o.decay_epochs or (epochs / 3 if o.decay == "step" else epochs)
    d = max(1, round(decay_epochs * steps_per_epoch))
    f = DEFAULT_RATES[o.decay] if o.decay_rate is None else o.decay_rate
    if o.decay == "step":
        return base * ramp * f ** (t // d)
    if o.decay == "exponential":
        return base * ramp * f ** (t / d)
    if t + 1 < warmup:
        return base * ramp
    start = max(0, warmup - 1)
    fraction = min(1.0, (t - start) / max(1, d - start))
    return base * (f + (1 - f) * (1 + math.cos(math.pi * fraction)) / 2)


OPTIONS = st.builds(
    RateOptions,
    warmup_epochs=st.none() | st.floats(0.05, 1.5),
    decay=st.none() | st.sampled_from(sorted(DEFAULT_RATES)),
    decay_rate=st.none() | st.floats(0.05, 1.0),
    decay_epochs=st.none() | st.floats(2.0, 9.0),
).filter(lambda options: options.has_schedule)


@settings(max_examples=60, deadline=None)
@given(OPTIONS, st.floats(1e-5, 10), st.integers(5, 9), st.integers(1, 400), st.data())
def test_the_rate_is_a_function_of_the_step(options, base, epochs, steps_per_epoch, data):
    length = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    try:
        schedule = build_schedule(base, options, **length)
    except PlanError:
        warmup, third = options.warmup_epochs, options.decay_epochs or epochs / 3
        assert round(warmup * steps_per_epoch) >= round(third * steps_per_epoch)
        return
    # A schedule that a checkpoint has restored is the same.
    restored = keras.optimizers.schedules.deserialize(
        keras.optimizers.schedules.serialize(schedule)
    )
    for step in data.draw(st.lists(st.integers(0, epochs * steps_per_epoch + 5), max_size=4)):
        rate = expected_rate(step, base, options, epochs, steps_per_epoch)
        assert float(schedule(step)) == pytest.approx(rate, rel=1e-4, abs=2e-6 * base)
        assert float(restored(step)) == float(schedule(step))


@settings(max_examples=40, deadline=None)
@given(OPTIONS, st.booleans(), st.integers(1, 16), st.integers(1, 16))
def test_a_resumed_run_has_its_rate_on_any_number_of_replicas(options, scales, before, after):
    flags = {
        name: getattr(options, name)
        for name in ("warmup_epochs", "decay", "decay_rate", "decay_epochs")
    }
    if options.decay is None:
        flags |= {"decay_rate": None, "decay_epochs": None}
    requested = Settings(scale_learning_rate=scales, **flags)
    started = resolve_rate_options(requested, None, before)
    assert started.factor == (before if scales else 1)
    state = replace(RUN, rate_options=started.as_saved())
    # With the same options, as a restarted job has them, or without any.
    for again in (requested, Settings()):
        assert resolve_rate_options(again, state, after) == started
    if not scales:
        assert started == resolve_rate_options(requested, None, after)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay": "cosine"}, "started without --decay and cannot continue with cosine"),
        ({"warmup_epochs": 2.0}, "started with --warmup-epochs 1.0 and cannot continue with 2.0"),
        ({"scale_learning_rate": True}, "started without --scale-learning-rate: leave it out"),
    ],
)
def test_other_options_than_before_are_refused(options, message):
    state = replace(RUN, rate_options=RateOptions(warmup_epochs=1.0).as_saved())
    with pytest.raises(PlanError, match=message):
        resolve_rate_options(Settings(**options), state, 2)


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(PlanError, match="--decay-rate needs --decay cosine, --decay step or"):
        resolve_rate_options(Settings(decay_rate=0.5), None, 2)
    long = RateOptions(warmup_epochs=2.0, decay="step")
    with pytest.raises(PlanError, match="--warmup-epochs 2 has to be less than the 1"):
        build_schedule(0.1, long, epochs=5, steps_per_epoch=10)
    with pytest.raises(ModelError, match="ReduceLROnPlateau sets the learning rate, and"):
        check_callbacks([keras.callbacks.ReduceLROnPlateau()])


def compiled(optimizer):
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


def test_every_optimizer_is_scheduled_on_its_own_rate():
    model = compiled(keras.optimizers.SGD(0.5))
    model.critic_optimizer = keras.optimizers.Adam(0.25)
    lines = []
    options = RateOptions(scale=4, warmup_epochs=1.0)
    saved = set_rates(model, options, replace(RUN, learning_rate=0.125), 5, lines.append)
    assert lines == [
        "learning rate of optimizer: 0.125 x 4 replicas = 0.5, warm-up over 1 epoch",
        "learning rate of critic_optimizer: 0.25 x 4 replicas = 1, warm-up over 1 epoch",
    ]
    assert float(model.optimizer.learning_rate) == pytest.approx(0.05)
    assert float(model.critic_optimizer.learning_rate) == pytest.approx(0.1)
    other = compiled("sgd")
    restore_schedules(other, {"optimizer": saved["optimizer"]})
    assert float(other.optimizer.learning_rate) == float(model.optimizer.learning_rate)


def test_a_schedule_of_the_model_is_refused():
    model = compiled(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10)))
    with pytest.raises(ModelError, match="gives optimizer a learning-rate schedule already: rem"):
        set_rates(model, RateOptions(decay="step"), RUN, 5, print)
    assert rates_of_last_step(model) == {"learning_rate": pytest.approx(0.1)}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("decay", ["cosine", "exponential"])
def test_a_saved_model_loads_without_this_package(tmp_path, monkeypatch, decay):
    model = compiled("adam")
    set_rates(model, RateOptions(warmup_epochs=1.0, decay=decay), RUN, 5, print)
    x = np.ones((4, 1))
    assert len(model.optimizer.variables) == 1  # TensorFlow compares the list with the one before
    model.fit(x, x, epochs=3, verbose=0)
    rate = rates_of_last_step(model)
    assert rate == {"learning_rate": pytest.approx(3e-4, rel=0.1)}  # of the third of ten steps
    files = save_model(model, str(tmp_path), Report(Role(), ""))
    assert files == ["model.keras", "saved_model.pb"]
    assert rates_of_last_step(model) == rate
    monkeypatch.delitem(keras.saving.get_custom_objects(), f"distlaunch_trainer>{WarmUp.__name__}")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.iterations == 3
    schedule = loaded.get_compile_config()["optimizer"]["config"]["learning_rate"]
    assert schedule["module"] == "keras.optimizers.schedules"


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
    set_rates(model, RateOptions(2), RUN, 5, print)
    rates = rates_of_last_step(model)
    assert rates == pytest.approx({"learning_rate/one": 0.002, "learning_rate/rest": 0.2})
    figures = {"examples": 10, "seconds": 1.0}
    history = [epoch_record(0, 1, {}, rates={"learning_rate/one": 1.0}, **figures)]
    history += [epoch_record(1, 2, {}, rates=rates, **figures)]
    line = epoch_line(2, history, shows_rate=False)
    assert "learning_rate/one 0.002 learning_rate/rest 0.2" in line
    with pytest.raises(ModelError, match=r"several optimizers.* gives MultiOptimizer"):
        set_rates(model, RateOptions(2), replace(RUN, learning_rate=0.1), 5, print)


def test_an_optimizer_without_a_rate_that_can_be_read_has_none():
    assert rates_of_last_step(compiled(WithoutRate())) == {}
