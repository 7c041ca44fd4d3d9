"""What is known to go wrong with the trainer that `init` brings."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from distlaunch import __version__
from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.requirements import any_version
from distlaunch.checks.trainer import ENGINE_ROOM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.requirements import Requirements
    from distlaunch.checks.project.sources import Sources
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.checks.trainer import Trainer
    from distlaunch.job.model import Job

_KERAS = ">=3.12,<3.16"  # what the engine room leans on, see docs/dependencies.md
_LAYER = "BatchNormalization"
# Those of keras.applications that have layers of that kind.
_FAMILIES = ("ResNet", "MobileNet", "EfficientNet", "DenseNet", "Inception", "Xception", "NASNet")
_MAY_NORMALISE = re.compile("|".join([_LAYER, *_FAMILIES]).encode())


def problems(
    trainer: Trainer, asked: JobRequest, listed: Requirements, folder: Path, sources: Sources
) -> Iterator[Problem]:
    """Yield what the bundled trainer does not do, or not as one might think."""
    yield from _missing(trainer.model, "create_model", folder, sources)
    yield from _missing(trainer.data, "training", folder, sources)
    yield from _roles(asked)
    yield from _unequal(asked)
    if asked.strategy == "SPOT":
        yield from _spot(trainer)
    if _replicas(asked) > 1 and not trainer.options.get("--sync-batch-norm"):
        yield from _unsynchronised(trainer.model, folder)
    yield from _older(trainer, folder)
    yield from _keras(listed)


def backend(job: Job) -> Iterator[Problem]:
    """Yield an error if the job sets another backend of Keras than the trainer's."""
    name = job.env.get("KERAS_BACKEND", "tensorflow")
    if name != "tensorflow":
        yield error(
            "keras-backend",
            "env.KERAS_BACKEND",
            f"the bundled trainer runs Keras on tensorflow, got {name!r}",
            "remove it",
        )


def _missing(file: Path, name: str, folder: Path, sources: Sources) -> Iterator[Problem]:
    """Tell of a file of the user's that does not define what the trainer takes from it."""
    names = sources.of(_shown(file, folder)).names
    if names is None or name in names or not file.is_file():
        return
    yield error(
        "trainer-incomplete",
        _shown(file, folder),
        f"defines no {name}(), which the trainer calls",
        f"write def {name}(): there, as 'distlaunch init' does",
    )


def _roles(asked: JobRequest) -> Iterator[Problem]:
    for pool in asked.pools:
        if pool.image or pool.module:
            continue
        if pool.role in ("parameter_servers", "evaluators"):
            yield error(
                "trainer-role",
                pool.section,
                f"the bundled trainer has no place for {pool.role.replace('_', ' ')}: its workers "
                "hold the weights, and validate them",
                f"take {pool.section} out, and count its machines as workers",
            )
        elif (pool.accelerator or "").startswith("TPU") or pool.topology:
            yield error(
                "trainer-tpu",
                f"{pool.section}.accelerator",
                f"the bundled trainer does not train on {pool.accelerator or 'TPUs'}",
                "take NVIDIA accelerators, as {type: NVIDIA_TESLA_T4, count: 1}, or bring a "
                "program of your own",
            )


def _unequal(asked: JobRequest) -> Iterator[Problem]:
    """Tell of workers that do not have as many GPUs as the chief."""
    training = [pool for pool in asked.pools if pool.is_training]
    if any((pool.accelerator or "").startswith("TPU") for pool in training):
        return
    for chief, pool in pairwise(training):
        if pool.accelerator_count != chief.accelerator_count:
            yield error(
                "accelerators-unequal",
                f"{pool.section}.accelerator.count",
                f"{pool.accelerator_count} on each of the workers and {chief.accelerator_count} on "
                "the chief: MultiWorkerMirroredStrategy adds up gradients of as many on each",
                "take the same number for both",
            )


def _spot(trainer: Trainer) -> Iterator[Problem]:
    every = trainer.options.get("--checkpoint-every", "0")
    if every in ("0", True, False):
        yield warning(
            "spot-without-checkpoints",
            "args",
            "SPOT machines can be taken at any time, and checkpoints are written at the end of an "
            "epoch alone",
            "add --checkpoint-every=500, or as many steps as may be lost",
        )
    if trainer.options.get("--resume") is False:
        yield warning(
            "spot-without-resume",
            "args",
            "SPOT machines can be taken at any time, and --no-resume begins anew after that",
            "take --no-resume out",
        )


def _replicas(asked: JobRequest) -> int:
    return sum(
        pool.replicas * max(1, pool.accelerator_count) for pool in asked.pools if pool.is_training
    )


def _unsynchronised(file: Path, folder: Path) -> Iterator[Problem]:
    """Yield the first layer that normalises each replica's rows by themselves."""
    try:
        text = file.read_bytes()
        tree = ast.parse(text if _MAY_NORMALISE.search(text) else b"")
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # others tell of that
    for node in ast.walk(tree):
        called = _called(node)
        is_alone = called == _LAYER and not _may_be_alike(node)
        has_alone = called.startswith(_FAMILIES) and b"trainable" not in text
        if is_alone or has_alone:
            yield warning(
                "batch-norm-unsynchronised",
                f"{_shown(file, folder)}:{getattr(node, 'lineno', 1)}",
                f"{called} normalises each replica's rows by themselves, so the weights differ "
                "with the number of replicas",
                "add --sync-batch-norm to args, or say synchronized=True",
            )
            return


def _called(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
    return ""


def _may_be_alike(node: ast.AST) -> bool:
    """Whether a layer is synchronised or not trained, or may be."""
    said = {each.arg: each.value for each in getattr(node, "keywords", ())}
    return None in said or not (
        _is(said.get("synchronized"), default=False) is False
        and _is(said.get("trainable"), default=True) is True
    )


def _is(said: ast.expr | None, *, default: bool) -> bool | None:
    """Return what an argument says, None where that cannot be told."""
    if said is None:
        return default
    return bool(said.value) if isinstance(said, ast.Constant) else None


def _older(trainer: Trainer, folder: Path) -> Iterator[Problem]:
    if _numbers(trainer.version) < _numbers(__version__):
        place = _shown(trainer.folder / ENGINE_ROOM / "__init__.py", folder)
        yield warning(
            "trainer-older",
            place,
            f"the trainer is that of distlaunch {trainer.version}, and this is {__version__}",
            f"replace {_shown(trainer.folder / ENGINE_ROOM, folder)} by that of a new project: "
            "'distlaunch init NEW'",
        )


def _keras(listed: Requirements) -> Iterator[Problem]:
    from packaging.specifiers import SpecifierSet

    for each in listed.of("keras"):
        if not any_version([each.specifier, SpecifierSet(_KERAS)]):
            yield warning(
                "requirement-clash",
                each.where,
                f"the bundled trainer was made for keras{_KERAS}, not for keras{each.specifier}",
                f"write keras{_KERAS}",
            )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]


def _shown(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
