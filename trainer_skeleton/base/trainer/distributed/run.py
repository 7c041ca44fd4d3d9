"""A run from its settings to its exit code: the rooms of this folder, in the order of the data."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import keras

from . import devices, explain, stop_signal
from .cluster import Role, Team, connect, role_from
from .dealing import Dealer
from .errors import DeviceError, ModelError, TrainerError
from .explain import from_user, model_build
from .loop import Loop, TrainingStopped
from .model_files import files_in, save_model, serialization_problem
from .normalization import differences
from .pipeline import Data
from .report import Report, is_summed_up, write_summary
from .saving import Checkpoints, Progress
from .settings import FLOAT, Settings, UserCode, kept
from .stop_signal import StopSignal
from .storage import join, make_folder

_CHIEF_FIRST_SECONDS = 5.0


@dataclass(frozen=True)
class Folders:
    """Where a job writes."""

    job: str
    model: str
    checkpoints: str
    logs: str


def folders_from(job_dir: str | None, environ: Any) -> Folders:
    """Return the job's folders: those of ``--job-dir``, else those that Vertex AI names."""
    model = environ.get("AIP_MODEL_DIR", "").rstrip("/")
    if job_dir or not model:
        job = (job_dir or "job").rstrip("/") or "/"
        return Folders(job, join(job, "model"), join(job, "checkpoints"), join(job, "logs"))
    job = model.rpartition("/")[0]
    return Folders(
        job,
        model,
        environ.get("AIP_CHECKPOINT_DIR", "").rstrip("/") or join(job, "checkpoints"),
        environ.get("AIP_TENSORBOARD_LOG_DIR", "").rstrip("/") or join(job, "logs"),
    )


def run(settings: Settings, load: Callable[[], UserCode]) -> int:
    """Train by ``settings`` on the cluster of ``TF_CONFIG``; return the exit code."""
    try:
        _run(settings, load)
    except TrainingStopped as stopped:
        print(f"trainer: {stopped}", file=sys.stderr, flush=True)
        return stop_signal.STOPPED
    except DeviceError as problem:
        _let_chief_end_first()
        _end_with(str(problem), debug=settings.debug)
    except TrainerError as problem:
        _end_with(str(problem), debug=settings.debug)
    except Exception as error:  # noqa: BLE001 - reported in one line like every other
        _end_with(explain.ending(error), debug=settings.debug)
    return 0


def _let_chief_end_first() -> None:
    """Wait on other tasks than the chief, whose end stops them before they report the same."""
    if not role_from(os.environ).is_chief:
        stop_signal.sleep(_CHIEF_FIRST_SECONDS)


def _end_with(problem: str, *, debug: bool) -> None:
    """Report a problem and end, without waiting for peers as TensorFlow's own shutdown would."""
    stop_signal.end_if_pending()  # a peer that received a stop signal may be the problem
    if debug:
        traceback.print_exc()
    print(f"trainer: error: {problem}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(1)


def _run(settings: Settings, load: Callable[[], UserCode]) -> None:
    role = role_from(os.environ)
    folders = folders_from(settings.job_dir, os.environ)
    report = Report(role, folders.logs)
    stop_signal.end_if_pending()
    _prepare_devices(role, settings)
    team = Team(role, connect(role))
    stop = StopSignal()
    checkpoints = _open_folders(folders, role, report)
    # Restarted tasks always resume from their checkpoints.
    is_restart = (os.environ.get("DISTLAUNCH_RESTARTS") or "0") != "0"
    saved = _checkpoint_to_resume(checkpoints, role, resume=settings.resume or is_restart)
    progress = _agreed_start(team, saved[0] if saved else None)
    before = progress and progress.precision
    settings = replace(settings, precision=kept("--precision", settings.precision, before, FLOAT))
    _set_precision(settings.precision)
    # Not before the strategy: user's modules may run operations as they are imported.
    user = from_user("importing the project's modules", load)
    dealt = Dealer(settings, user, team, folders.job, report).deal(progress)
    training, validation, progress = dealt.training, dealt.validation, dealt.progress
    sets_rate = settings.learning_rate not in {None, progress.learning_rate}
    progress = replace(progress, learning_rate=settings.learning_rate or progress.learning_rate)
    with team.strategy.scope():
        model = _create_model(user, training, team, progress.seed)
    callbacks = _callbacks(user)
    loop = Loop(
        model,
        team,
        training,
        validation,
        checkpoints=checkpoints,
        report=report,
        stop=stop,
        progress=progress,
        epochs=settings.epochs,
        checkpoint_every=settings.checkpoint_every,
        callbacks=callbacks,
        sync_batch_norm=settings.sync_batch_norm,
        audit=dealt.audit,
    )
    for note in differences(model, team.replicas, synchronized=settings.sync_batch_norm):
        report.warn(note)
    if role.is_chief and (problem := serialization_problem(model)):
        report.warn(f"model.keras will not be written, only weights and a SavedModel: {problem}")
    if progress.step:
        loop.restore(saved[1] if saved else None)
        report.log(f"resuming after step {progress.step}")
    if sets_rate:
        _set_learning_rate(model, settings.learning_rate)
    facts = _facts(team, training, validation, settings, progress)
    distinct = {"examples": dealt.audit.examples} if dealt.audit else {}
    team.meet()  # from here on all tasks can agree to stop
    stop.defer()
    report.event("ready", **facts | distinct, tasks=role.size, step=progress.step)
    with explain.steps(lambda: _bad_record(team, training, validation)), checkpoints:
        final = loop.run()
    results = {}
    if role.is_chief:
        # A model may also lie there of an earlier run, whose end this one did not come to.
        files = files_in(folders.model)
        if files and is_summed_up(folders.job, final.history):
            report.warn(_nothing_left(final))
        else:
            files = save_model(model, folders.model, report)
        summary = _summary(role, facts, final, progress, folders) | {
            "model_files": files,
            "data": {
                "training": training.describe(),
                "validation": validation.describe() if validation else None,
            },
        }
        results = {"model": folders.model, "summary": write_summary(folders.job, summary)}
        report.log(f"model: {folders.model}")
    team.meet()
    report.event("end", step=final.step, **results)


def _prepare_devices(role: Role, settings: Settings) -> None:
    """Print this task's devices, and check them before TensorFlow waits for the other tasks."""
    print(devices.describe_devices(), flush=True)
    warning = devices.check_gpus(role.name, os.environ, allow_cpu=settings.allow_cpu)
    if warning:
        print(f"trainer: warning: {warning}", file=sys.stderr, flush=True)
    if settings.gpu_memory_growth:
        devices.allow_memory_growth()


def _nothing_left(final: Progress) -> str:
    how = "a callback ended the training" if final.stopped else "all epochs are done"
    return (
        f"nothing is left to train, {how}: the model stays as it is; "
        "--no-resume starts from scratch"
    )


def _set_precision(precision: str | None) -> None:
    keras.config.set_floatx("float64" if precision == "float64" else "float32")
    keras.config.set_dtype_policy(precision)


def _open_folders(folders: Folders, role: Role, report: Report) -> Checkpoints:
    if role.is_chief:
        for folder in (folders.job, folders.model, folders.checkpoints):
            make_folder(folder)
    return Checkpoints(folders.checkpoints, report)


def _checkpoint_to_resume(checkpoints: Checkpoints, role: Role, *, resume: bool) -> Any:
    """Return the checkpoint to resume from; only the chief reads it."""
    if not role.is_chief:
        return None
    if resume:
        return checkpoints.newest()
    checkpoints.clear()
    return None


def _agreed_start(team: Team, progress: Progress | None) -> Progress | None:
    """Return on every task where the chief's checkpoint left the run."""
    start = json.loads(team.text_from_chief(json.dumps(asdict(progress) if progress else None)))
    return Progress(**start) if start else None


def _callbacks(user: UserCode) -> list[keras.callbacks.Callback]:
    given = from_user("callbacks()", user.callbacks)
    is_list = isinstance(given, (list, tuple))
    if not is_list or not all(isinstance(each, keras.callbacks.Callback) for each in given):
        raise ModelError(
            "callbacks() in trainer/model.py has to return a list of Keras callbacks, and "
            f"returned {given!r}"
        )
    return list(given)


def _create_model(user: UserCode, training: Data, team: Team, seed: int) -> keras.Model:
    keras.utils.set_random_seed(seed)
    model = from_user("create_model()", user.create_model)
    if not isinstance(model, keras.Model):
        raise ModelError(f"create_model() in trainer/model.py returned {type(model).__name__}")
    if getattr(model, "optimizer", None) is None:
        raise ModelError(
            "the model that create_model() in trainer/model.py returns is not compiled: "
            "end it with model.compile(optimizer=..., loss=...)"
        )
    with model_build():
        spec = training.pipeline.dataset(team.own_replicas).element_spec[0]
        model._symbolic_build(data_batch=spec)  # noqa: SLF001 - fit's own way to build
    return model


def _set_learning_rate(model: keras.Model, rate: float | None) -> None:
    try:
        model.optimizer.learning_rate = rate
    except (TypeError, ValueError):
        raise ModelError(
            "--learning-rate cannot replace the schedule that create_model() in trainer/model.py "
            "gives the optimizer: change it there"
        ) from None


def _bad_record(team: Team, *data: Data | None) -> str | None:
    """Look for a record of this task's that cannot be read or parsed."""
    for part in filter(None, data):
        for replica in team.own_replicas:
            if problem := part.pipeline.culprit(replica):
                return problem
    return None


def _facts(
    team: Team, training: Data, validation: Data | None, settings: Settings, progress: Progress
) -> dict[str, Any]:
    return {
        "global_batch": training.plan.global_batch,
        "steps_per_epoch": progress.steps_per_epoch,
        "epochs": settings.epochs,
        "examples": training.plan.examples,
        "validation_examples": validation.plan.examples if validation else 0,
        "replicas": team.replicas,
    }


def _summary(
    role: Role, facts: dict[str, Any], final: Progress, start: Progress, folders: Folders
) -> dict[str, Any]:
    return {
        "tasks": list(role.peers),
        "replicas": facts["replicas"],
        "global_batch": facts["global_batch"],
        "steps_per_epoch": facts["steps_per_epoch"],
        "examples_per_epoch": facts["examples"],
        "validation_examples": facts["validation_examples"],
        "steps": final.step,
        "epochs": final.history,
        "resumed_from": start.step or None,
        "model": folders.model,
    }
