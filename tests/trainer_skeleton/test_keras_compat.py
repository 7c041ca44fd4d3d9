"""The private names of Keras that the trainer uses do what it relies on."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as keras_trainer
from keras.src.losses import loss as keras_loss
from keras.src.optimizers import base_optimizer
from keras.src.saving import saving_lib
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from distlaunch_trainer import keras_compat
from distlaunch_trainer.errors import ModelError

layers = keras.layers
ROOT = Path(__file__).parents[2]


def nested():
    inner = keras.Sequential([layers.Dense(2, name="inner"), layers.Dropout(0.1, name="drop")])
    model = keras.Sequential([layers.Input((3,)), inner, layers.Dense(1, name="outer")])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def test_other_versions_are_refused(monkeypatch):
    keras_compat.check_version()
    for version in ("3.11.3", "3.16.0", "4.0.0"):
        monkeypatch.setattr(keras, "__version__", version)
        with pytest.raises(ModelError, match=rf"Keras {version} is not supported: install 'keras"):
            keras_compat.check_version()


def test_supported_versions_are_those_that_are_installed():
    files = ["pyproject.toml", "trainer_skeleton/base/requirements.txt.j2"]
    ranges = [re.findall(r"keras>=[\d.]+,<[\d.]+", (ROOT / name).read_text()) for name in files]
    assert {text for part in ranges for text in part} == {keras_compat.SUPPORTED}


def test_every_name_of_clear_session_calls_what_keeps_state(monkeypatch):
    for module in (tf.compat.v1, tf.compat.v2.compat.v1):
        monkeypatch.setattr(module, "reset_default_graph", module.reset_default_graph)
    calls = []
    keras_compat.keep_over_clear_session(lambda: calls.append("kept"))
    for clear in (keras.backend.clear_session, keras.utils.clear_session):
        clear(free_memory=False)
    tf.keras.backend.clear_session(free_memory=False)
    assert calls == ["kept"] * 3


def test_all_layers_are_those_inside_of_layers_too():
    model = nested()
    names = [layer.name for layer in keras_compat.all_layers(model)]
    assert {"inner", "drop", "outer", model.name} <= set(names)
    assert len(names) == len(set(names))
    assert model not in keras_compat.all_layers(model, include_self=False)


def test_calls_create_variables_and_update_none():
    layer = layers.Dense(1, kernel_initializer="ones", kernel_regularizer="l2")
    metric = keras.metrics.MeanSquaredError()

    @tf.function
    def call(x):
        metric.update_state(tf.zeros((2, 1)), layer(x))
        assert len(layer.losses) == 1  # also of variables that have no value yet

    with keras_compat.variable_creation():
        call.get_concrete_function(tf.TensorSpec((2, 3), layer.compute_dtype))
    assert [tuple(v.shape) for v in layer.variables] == [(3, 1), (1,)]
    np.testing.assert_array_equal(layer.kernel, np.ones((3, 1)))
    assert float(metric.total) == 0


def test_loss_tracker_is_the_metric_named_loss_of_the_logs():
    model = nested()
    model.evaluate(np.ones((2, 3)), np.ones((2, 1)), verbose=0)
    tracker = keras_compat.loss_tracker(model)
    assert float(tracker.result()) == float(model.get_metrics_result()["loss"]) > 0
    assert keras_compat.loss_tracker(keras.Sequential([layers.Dense(1)])) is None


def test_results_are_in_the_order_of_evaluate():
    model = nested()
    arrays = np.ones((2, 3)), np.ones((2, 1))
    logs = model.evaluate(*arrays, verbose=0, return_dict=True)
    in_order = keras_compat.metrics_in_order(model, dict(reversed(logs.items())))
    assert in_order == model.evaluate(*arrays, verbose=0) == [logs["loss"], logs["mae"]]
    assert keras_compat.metrics_in_order(model, {"loss": 2.0}) == 2.0


def test_metrics_of_outputs_are_those_of_several_losses():
    x = layers.Input((3,))
    model = keras.Model(x, {name: layers.Dense(1, name=name)(x) for name in "ab"})
    model.compile("sgd", {"a": "mse", "b": "mae"})
    arrays = np.ones((2, 3)), {name: np.ones((2, 1)) for name in "ab"}
    model.evaluate(*arrays, verbose=0)
    metrics = keras_compat.output_loss_metrics(model)
    assert [metric.name for metric in metrics] == ["a_loss", "b_loss"]
    assert all(float(metric.result()) > 0 for metric in metrics)
    assert keras_compat.output_loss_metrics(nested()) == []


def test_one_loss_without_regularizers():
    x = layers.Input((3,))
    model = keras.Model(x, layers.Dense(1, kernel_regularizer="l2", name="a")(layers.Masking()(x)))
    model.compile("sgd", keras.losses.MeanSquaredError(), loss_weights=2.0)
    assert keras_compat.only_loss(model) is None  # not built
    inputs, y = tf.constant([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]), tf.zeros((2, 1))
    predicted = model(inputs)
    total = model.compute_loss(inputs, y, predicted)
    loss = keras_compat.compiled_loss(model, y, predicted, None)
    assert float(loss + model.losses[0]) == pytest.approx(float(total))
    assert float(loss) == pytest.approx(2 * float(predicted[0, 0]) ** 2)
    assert keras_compat.only_loss(model).reduction == "sum_over_batch_size"
    assert keras_compat.mask_of(predicted).numpy().tolist() == [True, False]
    assert keras_compat.mask_of(y) is None
    several = keras.Model(x, [layers.Dense(1)(x), layers.Dense(1)(x)])
    several.compile("sgd", "mse")
    several.evaluate(np.ones((2, 3)), [np.ones((2, 1))] * 2, verbose=0)
    assert keras_compat.only_loss(several) is None


def test_own_losses_and_variables_leave_out_those_of_inner_layers():
    class Outer(layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = layers.BatchNormalization()
            self.count = self.add_weight(shape=(), trainable=False, name="count")
            self.metric = keras.metrics.Mean()

        def call(self, x):
            self.add_loss(tf.reduce_sum(x))
            return self.inner(x)

    outer = Outer()
    outer(tf.ones((2, 3)))
    assert [float(loss) for loss in keras_compat.own_losses(outer)] == [6.0]
    assert keras_compat.own_losses(outer.inner) == []
    assert [v.name for v in keras_compat.own_non_trainable_variables(outer)] == ["count"]
    statistics = keras_compat.own_non_trainable_variables(outer.inner)
    assert [v.name for v in statistics] == ["moving_mean", "moving_variance"]


def test_layers_with_random_numbers():
    assert keras_compat.has_seed_generators(layers.Dropout(0.5))
    assert not keras_compat.has_seed_generators(layers.Dense(1))


def test_replaced_moments_are_what_a_layer_normalizes_by():
    layer = layers.BatchNormalization(epsilon=0.0, dtype="float32")
    layer(tf.ones((2, 3)))
    alone = []

    def wrap(moments):
        def replaced(inputs, mask):
            alone.append([value.numpy() for value in moments(inputs, mask)])
            return tf.fill([3], 1.0), tf.fill([3], 4.0)

        return replaced

    keras_compat.replace_moments(layer, wrap)
    normalized = layer(tf.fill((2, 3), 5.0), training=True)
    np.testing.assert_array_equal(normalized, np.full((2, 3), 2.0))
    np.testing.assert_array_equal(alone, [[[5.0] * 3, [0.0] * 3]])


@pytest.fixture
def replica_context_sums(monkeypatch):
    """The gradients that are all-reduced while an optimizer applies them."""
    summed = []
    context = type(tf.distribute.get_replica_context())
    all_reduce = context.all_reduce

    def record(self, operation, value, *options):
        summed.extend(tf.nest.flatten(value))
        return all_reduce(self, operation, value, *options)

    for kind in context.__mro__:
        if "all_reduce" in vars(kind):
            monkeypatch.setattr(kind, "all_reduce", record)
    return summed


@pytest.mark.parametrize("is_scaled", [False, True])
def test_gradients_are_not_summed_by_the_optimizer(replica_context_sums, is_scaled):
    for is_disabled in (False, True):
        weight = keras.Variable([1.0])
        optimizer = keras.optimizers.SGD(0.5)
        if is_scaled:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1.0)
        optimizer.build([weight])
        if is_disabled:
            keras_compat.disable_gradient_aggregation(optimizer)
        replica_context_sums.clear()
        optimizer.apply([tf.constant([1.0])], [weight])
        assert len(replica_context_sums) == (0 if is_disabled else 1)
        assert float(weight.value[0]) == 0.5


def test_optimizers_branch_by_the_replaced_operations(monkeypatch):
    monkeypatch.setattr(base_optimizer, "ops", base_optimizer.ops)  # restored afterwards
    branches = []

    class Recorded:
        def __init__(self, operations):
            self.operations = operations

        def __getattr__(self, name):
            return getattr(self.operations, name)

        def cond(self, condition, *functions):
            branches.append(bool(condition))
            return self.operations.cond(condition, *functions)

    keras_compat.replace_optimizer_operations(Recorded)
    assert isinstance(keras_compat.optimizer_operations(), Recorded)
    weight = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    optimizer.build([weight])
    for _ in range(2):
        optimizer.apply([tf.constant([1.0])], [weight])
    assert branches == [False, True]


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "none"])
def test_losses_are_reduced_by_the_replaced_function(monkeypatch, reduction):
    theirs = keras_loss.reduce_weighted_values
    monkeypatch.setattr(keras_loss, "reduce_weighted_values", partial(theirs))
    for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution"):
        monkeypatch.setattr(keras_loss, name, lambda value: value / 2)
    reduced = []

    def wrap(reduce):
        def function(values, sample_weight=None, mask=None, reduction=None, dtype=None):
            reduced.append((tuple(values.shape), reduction))
            return reduce(values, sample_weight, mask, reduction, dtype)

        return function

    scaled_by_caller = [True]
    for _ in range(2):  # replaced once
        keras_compat.replace_loss_reduction(wrap, lambda: scaled_by_caller[0])
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    loss(tf.zeros((4, 1)), tf.ones((4, 1)))
    assert reduced == [((4,), reduction)]
    assert keras_loss.scale_loss_for_distribution(2.0) == 2.0
    scaled_by_caller[0] = False
    assert keras_loss.unscale_loss_for_distribution(2.0) == 1.0


def test_a_mask_zeroes_weights():
    weights, mask = tf.constant([2.0, 4.0]), tf.constant([True, False])
    masked = keras_compat.apply_mask(weights, mask, "float32", "mean_with_sample_weight")
    np.testing.assert_array_equal(masked, [2.0, 0.0])


def test_private_state_of_callbacks(tmp_path):
    known = keras.callbacks
    made = [known.ModelCheckpoint(tmp_path / "a.keras"), known.TensorBoard(tmp_path)]
    for callback in made:
        names = keras_compat.CALLBACK_STATE[type(callback)]
        assert [name for name in names if not hasattr(callback, name)] == []


def test_tensorboard_that_profiles_batches(tmp_path):
    board = keras.callbacks.TensorBoard
    assert keras_compat.traces_batches(board(tmp_path, profile_batch=2))
    assert not keras_compat.traces_batches(board(tmp_path, profile_batch=0))


@pytest.fixture
def restored_trainer(monkeypatch):
    """Keras's trainer, which a test may change."""
    for owner, names in (
        (keras_trainer, ("TFEpochIterator", "reduce_per_replica")),
        (
            keras_trainer.TensorFlowTrainer,
            ("_maybe_symbolic_build", "_make_function", "make_predict_function"),
        ),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))


@pytest.mark.usefixtures("restored_trainer")
def test_fit_reads_builds_and_steps_by_the_functions_that_replace_its_own():
    steps = []

    def distribute(batches):
        dataset = batches.data_adapter.get_tf_dataset().take(1)
        return dataset, dataset.element_spec

    def wrap_step(_, step):
        steps.append(step.__name__)
        return step

    def wrap_predict(step):
        return lambda batch: step(batch) + 1.0

    keras_compat.replace_fit_data(distribute, keras_compat.build_by_call)
    keras_compat.replace_fit_steps(wrap_step, wrap_predict, lambda value, _: value)
    model = keras.Sequential([layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    built = []
    remember = keras.callbacks.LambdaCallback(on_train_begin=lambda _: built.append(model.built))
    x, y = np.ones((6, 3)), np.ones((6, 1))
    model.fit(x, y, batch_size=4, steps_per_epoch=1, callbacks=[remember], verbose=0)
    assert built == [True]
    assert keras_compat.counted_rows(model) == 4
    model.evaluate(x, y, batch_size=4, steps=1, verbose=0)
    assert steps == ["train_step", "test_step"]
    np.testing.assert_array_equal(
        model.predict(x, batch_size=4, steps=1, verbose=0), np.ones((4, 1))
    )


@pytest.mark.usefixtures("restored_trainer")
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("is_counted", [True, False])
def test_batches_are_read_from_a_position_as_if_all_before_had_been_read(is_counted):
    def distribute(batches):
        return batches.data_adapter.get_tf_dataset(), None

    def read(batches, most=99):
        """Return the rows of an epoch, or of its first batches."""
        rows = []
        with batches.catch_stop_iteration():
            for _, _, iterator in batches:
                rows.append(next(iterator).numpy().tolist())
                if len(rows) == most:
                    break
        return rows

    def make():
        keras.utils.set_random_seed(1)
        data = tf.data.Dataset.range(20).shuffle(20)
        data = data if is_counted else data.filter(lambda _: True)
        batches = keras_compat.FitBatches(x=data.batch(4))
        batches.reset()
        return batches

    keras_compat.replace_fit_data(distribute, lambda *_: None)
    undisturbed, stopped = make(), make()
    epochs = [read(undisturbed) for _ in range(4)]
    assert [read(stopped) for _ in range(2)] == epochs[:2]
    between = make()
    between.resume(stopped.position(0), 0)
    assert [read(between) for _ in range(2)] == epochs[2:]
    read(stopped, 2)
    within = make()
    within.resume(stopped.position(2), 2)
    assert [read(within) for _ in range(2)] == [epochs[2][2:], epochs[3]]


def test_arrays_are_shuffled_as_permuted_in_each_epoch():
    shifts = iter((0, 1, 2))
    with keras_compat.array_shuffle(lambda rows: np.roll(rows, next(shifts))):
        adapter = ArrayDataAdapter(np.arange(6), batch_size=4, shuffle=True)
        dataset = adapter.get_tf_dataset()
    epochs = [np.concatenate([*dataset]) for _ in range(3)]
    np.testing.assert_array_equal(epochs, [np.roll(np.arange(6), shift) for shift in range(3)])
    assert sorted(tf.random.shuffle(tf.range(6)).numpy()) == [*range(6)]


def test_a_list_of_attributes_is_made_without_variables(monkeypatch):
    monkeypatch.setattr(saving_lib, "get_attr_skipset", saving_lib.get_attr_skipset)
    keras_compat.save_without_collectives()

    def refuse(*_, **__):
        raise AssertionError

    with tf.variable_creator_scope(refuse):
        assert "learning_rate" in saving_lib.get_attr_skipset("Optimizer")


def test_the_initial_epoch_is_where_fit_starts():
    model = nested()
    epochs = []

    class Start(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            assert keras_compat.initial_epoch(model) is None
            keras_compat.set_initial_epoch(model, 2)

        def on_epoch_begin(self, epoch, logs=None):
            epochs.append(epoch)

    model.fit(np.ones((2, 3)), np.ones((2, 1)), epochs=4, callbacks=[Start()], verbose=0)
    assert epochs == [2, 3]


def test_saved_variables_are_those_of_weights_and_all_optimizers_without_metrics():
    model = nested()
    model.second_optimizer = keras.optimizers.Adam()
    model.second_optimizer.build(model.trainable_variables)
    variables = keras_compat.saved_variables(model)
    optimizers = [*model.optimizer.variables, *model.second_optimizer.variables]
    ids = [id(variable) for variable in variables]
    assert {id(v) for v in [*model.weights, *optimizers]} <= set(ids)
    assert not {id(v) for v in model.metrics_variables} & set(ids)
    assert len(ids) == len(set(ids))


def test_accumulators_hold_gradients_until_the_update():
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    first, second = (keras.Variable([0.0, 0.0], name=name) for name in ("first", "second"))
    optimizer.build([first, second])
    for accumulated, iterations in (([1.0, 2.0], 1), ([0.0, 0.0], 2)):
        optimizer.apply([tf.constant([3.0, 4.0]), tf.constant([1.0, 2.0])])
        accumulator = keras_compat.gradient_accumulator(optimizer, second)
        np.testing.assert_array_equal(accumulator.numpy(), accumulated)
        assert int(keras_compat.iteration_counter(optimizer).numpy()) == iterations
    np.testing.assert_array_equal(second.numpy(), [-1.0, -2.0])


def test_an_optimizer_is_copied_with_a_schedule_that_keras_cannot_serialize():
    class Halved(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.5**step

    optimizer = keras.optimizers.AdamW(Halved(), weight_decay=0.1)
    copy = keras.optimizers.AdamW.from_config(keras_compat.optimizer_config(optimizer))
    for each in (copy, optimizer):
        each.build([keras.Variable([1.0])])
        each.iterations.assign(3)
        assert float(each.learning_rate) == 0.125
    constant = keras_compat.optimizer_config(keras.optimizers.SGD(0.25))
    assert constant["learning_rate"] == 0.25


def test_variables_without_weight_decay_are_known():
    bias, kernel = keras.Variable([1.0], name="bias"), keras.Variable([1.0], name="kernel")
    optimizer = keras.optimizers.AdamW()
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    assert [keras_compat.decays(optimizer, each) for each in (bias, kernel)] == [False, True]


def updated_by_adamw(*, is_scaled, is_compiled):
    """Return weights after some updates, and whether XLA compiles a part of one."""
    weights = keras.Variable([[1.0], [2.0]], name="kernel")
    adamw = keras.optimizers.AdamW(0.1, weight_decay=0.1, clipnorm=0.5)
    adamw.build([weights])
    optimizer = keras.optimizers.LossScaleOptimizer(adamw, 4.0) if is_scaled else adamw
    optimizer.build([weights])
    keras_compat.compile_updates(optimizer, lambda: is_compiled)
    apply = tf.function(lambda gradient: optimizer.apply([gradient], [weights]))
    rows = tf.IndexedSlices(tf.constant([[3.0]]), tf.constant([1]), tf.constant([2, 1]))
    for gradient in (tf.constant([[4.0], [1.0]]), tf.constant([[2.0], [8.0]]), rows):
        apply(gradient)
    graph = apply.get_concrete_function(tf.zeros([2, 1])).graph.as_graph_def()
    return weights.numpy(), any(f.attr["_XlaMustCompile"].b for f in graph.library.function)


@pytest.mark.parametrize("is_scaled", [False, True])
def test_updates_that_xla_compiles_are_the_same(is_scaled):
    """With clipping and weight decay; rows of sparse gradients are applied without XLA."""
    plain, is_plain_compiled = updated_by_adamw(is_scaled=is_scaled, is_compiled=False)
    compiled, is_compiled = updated_by_adamw(is_scaled=is_scaled, is_compiled=True)
    assert (is_plain_compiled, is_compiled) == (False, True)
    np.testing.assert_allclose(plain, compiled, rtol=1e-6)
    assert not np.allclose(plain, [[1.0], [2.0]])
