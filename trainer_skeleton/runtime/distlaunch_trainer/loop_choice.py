"""The training loop for a cluster: all tasks in step, or workers of parameter servers."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from .errors import ModelError
from .input.data_setup import TrainingData
from .loop.callbacks import Callbacks
from .loop.loop import Loop
from .loop.loop_options import LoopOptions, StepTools, TaskServices
from .parameter_server.coordinator_loop import CoordinatorLoop
from .run_start import JoinedRun
from .step.custom_steps import TrainStep
from .step.model_replicas import ModelReplicas
from .step.step_functions import StepFunctions
from .task.step_watchdog import STEP_TIMEOUT
from .training_state import Progress

_TIMEOUT_ALONE = 1800.0  # seconds of a task that waits for its data alone


def create_loop(
    joined: JoinedRun,
    model: keras.Model,
    data: TrainingData,
    *,
    progress: Progress,
    callbacks: Sequence[keras.callbacks.Callback],
    train_step: TrainStep | None,
) -> Loop:
    """Return the loop that trains a model on the tasks of a run; see `Run.fit`."""
    settings = joined.settings
    timeout = settings.step_timeout
    if timeout is None:
        is_alone = joined.cluster.role.num_workers == 1 and joined.servers is None
        timeout = _TIMEOUT_ALONE if is_alone else STEP_TIMEOUT
    services = TaskServices(joined.cluster, joined.checkpoints, joined.report, joined.stop)
    options = LoopOptions(
        settings.epochs,
        checkpoint_every=settings.checkpoint_every,
        step_timeout=timeout,
        single_steps=settings.check_numerics,
    )
    if joined.servers is not None and train_step is not None:
        raise ModelError(
            "a train_step of your own is for workers that train in step: with parameter "
            "servers, leave it out and override compute_loss() of the model"
        )
    replicas = ModelReplicas(
        model,
        joined.cluster.strategy,
        synchronize=settings.sync_batch_norm,
        train_step=train_step,
        record_examples=data.audit.record if data.audit else None,
    )
    tools = StepTools(
        StepFunctions(replicas),
        Callbacks(
            list(callbacks),
            model,
            epochs=settings.epochs,
            steps=data.options.steps_per_epoch,
            writes=joined.cluster.role.is_chief,
            report=joined.report,
        ),
        audit=data.audit,
    )
    if joined.servers is not None:
        return CoordinatorLoop(
            model,
            joined.servers,
            services,
            data,
            options=options,
            tools=tools,
            progress=progress,
        )
    return Loop(model, services, data, options=options, tools=tools, progress=progress)
