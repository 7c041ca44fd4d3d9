"""``evaluate`` on all replicas: of a script, and of a project's callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from distlaunch_trainer.cluster.collectives import Cluster
from distlaunch_trainer.input.user_data.user_batches import UserBatches, compared
from distlaunch_trainer.keras_compat import fit_calls
from distlaunch_trainer.loop.callbacks import TEST_HOOKS, has_hook
from distlaunch_trainer.loop.evaluator import Evaluator
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.step.step_functions import StepFunctions

from .interception import intercepted, set_verbosity
from .open_data import Caller, open_data


@contextmanager
def collective_evaluate(
    model: keras.Model, functions: StepFunctions, cluster: Cluster, report: Report
) -> Iterator[None]:
    """Let ``model.evaluate()`` in callbacks use all replicas: Keras's own fails on several tasks.

    It is to be called on all tasks.
    """
    if cluster.replicas == 1 or cluster.needs_static_shapes:  # a TPU's replicas are of one task
        yield
        return

    def evaluate(_: Callable[..., Any], arguments: inspect.BoundArguments) -> Any:
        values = arguments.arguments
        set_verbosity(values, is_chief=cluster.role.is_chief)
        call = cluster.rendezvous.meet("evaluate()")
        data = evaluation_data(values, Caller(cluster, report, call))
        return evaluate_together(model, functions, data, cluster, values)

    model.evaluate = intercepted(model.evaluate, evaluate)
    try:
        yield
    finally:
        del model.evaluate


def evaluation_data(values: dict[str, Any], caller: Caller) -> UserBatches:
    """Return the data of a call of ``evaluate`` by its arguments."""
    arrays = (values[name] for name in ("x", "y", "sample_weight"))
    options = {"batch_size": values["batch_size"], "steps_per_epoch": values["steps"]}
    return open_data(caller, *arrays, **options)


def evaluate_together(
    model: keras.Model,
    functions: StepFunctions,
    data: UserBatches,
    cluster: Cluster,
    values: dict[str, Any],
) -> Any:
    """Return what ``evaluate`` of a built model returns on all tasks, by its arguments."""
    functions.synchronize()
    given, verbose = values["callbacks"], values["verbose"]
    own = any(has_hook(callback, TEST_HOOKS) for callback in flatten_callbacks(given))
    hooks = cluster.rendezvous.exchange("batch hooks", own, "to call evaluate()")
    if not isinstance(given, keras.callbacks.CallbackList):
        given = keras.callbacks.CallbackList(
            given,
            add_progbar=verbose != 0,
            verbose=verbose,
            epochs=1,
            steps=data.steps,
            model=model,
        )
    evaluator = Evaluator(
        model, functions, cluster, data, callbacks=given, calls_batch_hooks=any(hooks)
    )
    with compared(data):
        logs = evaluator.evaluate()
    return fit_calls.results_of(model, logs, return_dict=values["return_dict"])


def flatten_callbacks(given: Any) -> list[keras.callbacks.Callback]:
    """Return the callbacks that a script gives: None, one, a list or a `CallbackList`."""
    if isinstance(given, keras.callbacks.CallbackList):
        return list(given.callbacks)
    return keras.tree.flatten(given or [])
