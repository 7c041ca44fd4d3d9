"""Rules for projects that train with the trainer package, as those of `init` do."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from distlaunch import __version__
from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.requirements import any_version
from distlaunch.checks.trainer import parse_arguments
from distlaunch.job.model import RangeParameter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.requirements import ImageRequirements
    from distlaunch.checks.trainer import Trainer
    from distlaunch.job.model import ChoiceParameter, Job
    from distlaunch.job.vertex.view import JobRequest

_KERAS = ">=3.12,<3.16"  # see docs/dependencies.md
_LAYER = "BatchNormalization"
# The models of keras.applications that have such layers.
_APPLICATIONS = re.compile("ResNet|MobileNet|EfficientNet|DenseNet|Inception|Xception|NASNet")


def problems(
    trainer: Trainer, job: Job, request: JobRequest, requirements: ImageRequirements, folder: Path
) -> Iterator[Problem]:
    """Yield what the bundled trainer cannot do, or does in another way than expected."""
    yield from code_problems(trainer, job, folder)
    yield from _pool_problems(trainer, request)
    if request.strategy == "SPOT":
        yield from _spot_problems(trainer)
    pools = [pool for pool in request.pools if pool.is_training]
    replicas = sum(pool.replicas * max(1, pool.accelerator_count) for pool in pools)
    is_in_step = replicas > 1 and not request.has_parameter_servers
    if is_in_step and not trainer.options.sync_batch_norm:
        model = trainer.folder / "model.py"
        yield from _unsynchronized(_parsed(model), model.relative_to(folder).as_posix())
    yield from _copy_problems(trainer, folder)
    yield from _keras_problems(job, requirements)


def code_problems(trainer: Trainer, job: Job, folder: Path) -> Iterator[Problem]:
    """Yield what the trainer refuses wherever it runs."""
    for name, function in (("model", "create_model"), ("data", "training")):
        file = trainer.folder / f"{name}.py"
        yield from _undefined(_parsed(file), function, file.relative_to(folder).as_posix())
    yield from _argument_problems(trainer, job)


def _parsed(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None  # other rules report it


def _undefined(tree: ast.Module | None, function: str, file: str) -> Iterator[Problem]:
    """Yield an error if a module of the user has no function that the trainer calls."""
    names = rf"'({function}|__getattr__|globals|\*)'"
    if tree and not re.search(names, ast.dump(tree)):
        what = f"no function {function}(), which the trainer calls"
        remedy = f"write def {function}():, see the file of a new project: 'distlaunch init NEW'"
        yield error("trainer-incomplete", file, what, remedy)


def _copy_problems(trainer: Trainer, folder: Path) -> Iterator[Problem]:
    """Yield a warning if the project has an older copy of the trainer package."""
    if not trainer.library.is_relative_to(folder):
        return
    library = trainer.library.relative_to(folder).as_posix()
    if _numbers(trainer.version) < _numbers(__version__):
        what = f"the copy is of distlaunch {trainer.version}, this is {__version__}"
        remedy = "run 'distlaunch eject --force', which keeps changed files as FILE.bak"
        yield warning("trainer-older", f"{library}/__init__.py", what, remedy)


def _pool_problems(trainer: Trainer, request: JobRequest) -> Iterator[Problem]:
    for pool in request.pools:
        if pool.image or pool.module:
            continue
        if pool.role == "parameter_servers" and not any(p.role == "workers" for p in request.pools):
            what = "parameter servers need a worker: the chief only coordinates"
            yield error("trainer-role", pool.section, what, "add cluster.workers")
        elif (
            pool.role == "workers" and pool.accelerator_count > 1 and request.has_parameter_servers
        ):
            what = f"with parameter servers a worker uses one of its {pool.accelerator_count} GPUs"
            remedy = "set count: 1, and add workers"
            yield error("trainer-role", f"{pool.section}.accelerator.count", what, remedy)
        elif pool.role == "evaluators" and pool.replicas > 1:
            what = f"the bundled trainer has one evaluator, and {pool.replicas} are requested"
            yield error("trainer-role", f"{pool.section}.count", what, "set count: 1")
        elif pool.has_tpu and trainer.options.strategy != "tpu":
            what = f"the trainer would not use the TPU of {pool.section}"
            yield error("trainer-tpu", "args", what, "add --strategy=tpu")


def _spot_problems(trainer: Trainer) -> Iterator[Problem]:
    preempted = "SPOT machines can be preempted at any time, and"
    if not trainer.options.checkpoint_every:
        what = f"{preempted} checkpoints are only written at the end of an epoch"
        remedy = "add --checkpoint-every=500, or as many steps as may be lost"
        yield warning("spot-without-checkpoints", "args", what, remedy)
    if not trainer.options.resume:
        what = f"{preempted} --no-resume then starts from scratch"
        yield warning("spot-without-resume", "args", what, "remove --no-resume")


def _unsynchronized(tree: ast.Module | None, file: str) -> Iterator[Problem]:
    """Yield a warning for the first layer that normalizes the rows of each replica alone."""
    nodes = list(ast.walk(tree)) if tree else []
    sets_trainable = any(getattr(node, "attr", None) == "trainable" for node in nodes)
    for call in nodes:
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func).rpartition(".")[2]
        arguments = {each.arg for each in call.keywords}
        is_layer = name == _LAYER and arguments.isdisjoint({"synchronized", "trainable", None})
        if is_layer or (_APPLICATIONS.match(name) and not sets_trainable):
            what = (
                f"{name} normalizes the rows of each replica alone: weights depend on their number"
            )
            remedy = "add --sync-batch-norm to args, or write synchronized=True"
            yield warning("batch-norm-unsynchronised", f"{file}:{call.lineno}", what, remedy)
            return


def _keras_problems(job: Job, requirements: ImageRequirements) -> Iterator[Problem]:
    backend = job.env.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        what = f"the bundled trainer runs Keras on tensorflow, got {backend!r}"
        yield error("keras-backend", "env.KERAS_BACKEND", what, "remove it")
    for line in requirements.lines:
        specifier = line.requirement.specifier if line.requirement else None
        if line.name == "keras" and not any_version([specifier or "", _KERAS]):
            what = f"the bundled trainer needs keras{_KERAS}, got keras{specifier}"
            remedy = f"write keras{_KERAS}"
            yield warning("requirement-clash", line.location, what, remedy)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]


def _argument_problems(trainer: Trainer, job: Job) -> Iterator[Problem]:
    """Yield arguments and tuned parameters that the parser of an unchanged trainer refuses."""
    if trainer.changed_task:
        return
    yield from trainer.problems
    for name, parameter in (job.tuning.parameters if job.tuning else {}).items():
        for values in _samples(parameter):
            where = f"tuning.parameters.{name}"
            refusals = [parse_arguments([f"--{name}={value}"], where)[1] for value in values]
            if all(refusals):
                yield from refusals[0]
                break


def _samples(parameter: RangeParameter | ChoiceParameter) -> Iterator[tuple[str, ...]]:
    """Yield values of a tuned parameter, each in the ways in which it may be written."""
    if not isinstance(parameter, RangeParameter):
        for value in parameter.values:
            yield _written(float(value)) if parameter.is_numeric else (value,)
        return
    low, high = parameter.minimum, parameter.maximum
    ends = [end for end in (low, high) if end > 0 or parameter.scale == "linear"]
    yield from map(_written, ends)
    if not parameter.is_integer and low < high:
        yield (repr(low + (high - low) / 7.3),)


def _written(number: float) -> tuple[str, ...]:
    return (str(int(number)), repr(number)) if number % 1 == 0 else (repr(number),)
