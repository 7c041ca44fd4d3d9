"""The location of a problem: its key → file, line and column, or the option that set it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.checks.request_view import ROLES
from distlaunch.errors import DistlaunchError
from distlaunch.job import ai_platform
from distlaunch.job.load import FILE_NAME
from distlaunch.job.yaml_document import display_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Any

    from distlaunch.checks.problem import Problem
    from distlaunch.job.yaml_document import Document
    from distlaunch.submit.plan import LaunchRequest

_Path = tuple[str | int, ...]

_POOL = {
    "": "",
    "machine": "machineSpec.machineType",
    "accelerator": "machineSpec",
    "accelerator.type": "machineSpec.acceleratorType",
    "accelerator.count": "machineSpec.acceleratorCount",
    "count": "replicaCount",
    "image": "containerSpec.imageUri",
}
_SPEC = {
    "cluster": "workerPoolSpecs",
    "image.uri": "workerPoolSpecs.0.containerSpec.imageUri",
    "args": "workerPoolSpecs.0.containerSpec.args",
    "env": "workerPoolSpecs.0.containerSpec.env",
    "scheduling": "scheduling",
    "scheduling.max_wait": "scheduling.maxWaitDuration",
    "service_account": "serviceAccount",
    "network": "network",
    "tensorboard": "tensorboard",
}
_TOP = {
    "name": "displayName",
    "labels": "labels",
    "tuning": "studySpec",
    "tuning.parameters": "studySpec.parameters",
    "tuning.trials": "maxTrialCount",
    "tuning.parallel_trials": "parallelTrialCount",
    "vertex": "",
}
_AI_PLATFORM_POOL = {
    "": "{}Type",
    "machine": "{}Type",
    "accelerator": "{}Config.acceleratorConfig",
    "accelerator.type": "{}Config.acceleratorConfig.type",
    "accelerator.count": "{}Config.acceleratorConfig.count",
    "count": "{}Count",
    "image": "{}Config.imageUri",
}
_AI_PLATFORM = {
    "name": "jobId",
    "labels": "labels",
    "region": "trainingInput.region",
    "args": "trainingInput.args",
    "image.uri": "trainingInput.masterConfig.imageUri",
    "scheduling": "trainingInput.scheduling",
    "scheduling.timeout": "trainingInput.scheduling.maxRunningTime",
    "scheduling.max_wait": "trainingInput.scheduling.maxWaitTime",
    "service_account": "trainingInput.serviceAccount",
    "network": "trainingInput.network",
    "vertex.encryptionSpec": "trainingInput.encryptionConfig",
    "tuning": "trainingInput.hyperparameters",
    "tuning.parameters": "trainingInput.hyperparameters.params",
    "tuning.trials": "trainingInput.hyperparameters.maxTrials",
    "tuning.parallel_trials": "trainingInput.hyperparameters.maxParallelTrials",
}
_AI_PLATFORM_ROLES = ("master", "worker", "parameterServer", "evaluator")
_MENTION = re.compile(r"\b(?:cluster|scheduling)\.[a-z_.]*[a-z]\b")
_ACCELERATOR = re.compile(r"\baccelerator: \{type: (\w+), count: (\d+)\}")
_DURATIONS = {"timeout: 7d": "604800s", "max_wait: 24h": "86400s"}
_KEY = re.compile(r"[a-z_]+(\.[\w-]+)*")
_ONLY_IN_CONFIG = ("cluster.", "reduction_server")  # what --config replaces in distlaunch.yaml


def locate(problems: Iterable[Problem], order: LaunchRequest) -> tuple[Problem, ...]:
    """Return problems with the location of the keys that they are about.

    That is the option of the command line that set the key; else file, line and column. With
    ``--config`` keys and remedies are translated to the fields of that file.
    """
    own = _File(order.folder / FILE_NAME)
    config = _File(order.config) if order.config else None
    fields = _ConfigFields(config.document.data) if config and config.document else None
    return tuple(
        _located(problem, order, own, config, fields) if _is_key(problem.where) else problem
        for problem in problems
    )


class _File:
    def __init__(self, path: Path) -> None:
        self.name = display_path(path)
        self.document = _document(path)

    def match(self, path: tuple[str | int, ...]) -> tuple[int, str]:
        """Return how many steps of a path the file has, and the location of the last one."""
        matched: tuple[str | int, ...] = ()
        for step in path if self.document else ():
            names = (step, _snake_case(step)) if isinstance(step, str) else (step,)
            known = [
                name for name in names if self.document and self.document.holds((*matched, name))
            ]
            if not known:
                break
            matched = (*matched, known[0])
        if not matched or not self.document:
            return 0, self.name
        mark = self.document.location(matched)
        return len(matched), f"{self.name}:{mark.line}:{mark.column}"


def _located(
    problem: Problem,
    order: LaunchRequest,
    own: _File,
    config: _File | None,
    fields: _ConfigFields | None,
) -> Problem:
    option = _option(problem, order)
    if option:
        return replace(problem, where=option)
    key = problem.where
    own_path = tuple(int(step) if step.isdecimal() else step for step in key.split("."))
    own_steps, own_location = own.match(own_path)
    path = fields.path(key) if fields else None
    if config and fields and path is not None:
        steps, location = config.match(path)
        is_in_own = own_steps == len(own_path) or own_steps > steps
        if steps == len(path) or key.startswith(_ONLY_IN_CONFIG) or not is_in_own:
            remedy = fields.translate(problem.remedy, key)
            return replace(problem, where=f"{location}: {_written(path)}", remedy=remedy)
    return replace(problem, where=f"{own_location}: {key}")


def _option(problem: Problem, order: LaunchRequest) -> str | None:
    """Return the option of the command line that set a key or a part of it."""
    key = problem.where
    for override in order.overrides:
        name = override.partition("=")[0]
        if f"{key}.".startswith(f"{name}.") or f"{name}.".startswith(f"{key}."):
            return f"--set {name}"
    options = (word.partition("=")[0] for word in order.program_args if word.startswith("-"))
    if key == "args" and any(option in problem.what for option in options):
        return "arguments after --"
    return order.cli_overrides.get(key)


def _is_key(where: str) -> bool:
    from distlaunch.job.schema import JobSection

    return bool(_KEY.fullmatch(where)) and where.partition(".")[0] in JobSection.model_fields


def _snake_case(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _document(path: Path) -> Document | None:
    from distlaunch.job.yaml_document import Document, YamlProblem, read_text

    try:
        return Document(read_text(path))
    except (DistlaunchError, YamlProblem):
        return None  # the job was read from it, or it does not exist


class _ConfigFields:
    """The fields of a file: AI Platform's job, a CustomJobSpec, CustomJob or tuning job."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._is_ai_platform = ai_platform.is_training_input(data)
        if self._is_ai_platform:
            self._fields = dict(_AI_PLATFORM)
            pools, names = _AI_PLATFORM_POOL, [f"trainingInput.{x}" for x in _AI_PLATFORM_ROLES]
        else:
            specs = ("jobSpec", "trialJobSpec", "job_spec", "trial_job_spec")
            prefix = next((f"{spec}." for spec in specs if spec in data), "")
            self._fields = _TOP | {key: f"{prefix}{field}" for key, field in _SPEC.items()}
            pools = {key: f"{{}}.{field}".rstrip(".") for key, field in _POOL.items()}
            names = [f"{prefix}workerPoolSpecs.{index}" for index in range(len(ROLES))]
            self._fields["reduction_server"] = names[2]
            self._fields |= dict.fromkeys(("vertex.jobSpec", "vertex.trialJobSpec"), prefix[:-1])
        for role, name in zip(ROLES, names, strict=True):
            section = f"cluster.{role}"
            self._fields |= {
                f"{section}.{key}".rstrip("."): field.format(name) for key, field in pools.items()
            }

    def path(self, key: str) -> _Path | None:
        """Return where the file has, or would have, a key of distlaunch.yaml."""
        steps = key.split(".")
        for length in range(len(steps), 0, -1):
            field = self._fields.get(".".join(steps[:length]))
            if field is not None:
                parts = [*filter(None, field.split(".")), *steps[length:]]
                return tuple(int(part) if part.isdecimal() else part for part in parts)
        return None

    def translate(self, remedy: str, key: str) -> str:
        """Return the remedy of a problem at a key in the words of the file."""
        if not self._is_ai_platform:
            remedy = _ACCELERATOR.sub(r"acceleratorType: \1, acceleratorCount: \2", remedy)
        section = ".".join(key.split(".")[:2])
        accelerator = ".accelerator" if ".accelerator" in key else ""
        leaves = {
            "machine": f"{section}.machine",
            "accelerator": f"{section}.accelerator",
            "count": f"{section}{accelerator}.count",
            "timeout": "scheduling.timeout",
            "max_wait": "scheduling.max_wait",
            "service_account": "service_account",
            "trials": "tuning.trials",
            "parallel_trials": "tuning.parallel_trials",
        }
        for text, seconds in _DURATIONS.items():
            remedy = remedy.replace(text, f"{text.partition(' ')[0]} {seconds}")
        for mention in _MENTION.findall(remedy):
            if path := self.path(mention):
                remedy = remedy.replace(mention, _written(path))
        for leaf, full in leaves.items():
            path = self.path(full)
            if path:
                remedy = re.sub(rf"(?<![\w.{{])(?<!, ){leaf}: ", f"{path[-1]}: ", remedy)
        return remedy


def _written(path: _Path) -> str:
    """Return a path as errors of files write it, such as ``workerPoolSpecs[1].replicaCount``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")
