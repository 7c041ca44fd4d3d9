"""The location of a problem: its key → file, line and column, or the option that set it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.errors import DistlaunchError
from distlaunch.files import display_path
from distlaunch.job import ai_platform
from distlaunch.job.load import FILE_NAME
from distlaunch.job.tasks import POOL_ROLES
from distlaunch.job.validation import dotted_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Any

    from distlaunch.checks.problem import Problem
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.yaml_document import Document

_Path = tuple[str | int, ...]

# Key of distlaunch.yaml: field of Vertex AI's formats, field of AI Platform's; None for that of the
# key before the last dot.
_FIELDS = {
    "name": ("displayName", "jobId"),
    "labels": ("labels", "labels"),
    "region": (None, "{spec}region"),
    "cluster": ("{spec}workerPoolSpecs", None),
    "image.uri": ("{spec}workerPoolSpecs.0.containerSpec.imageUri", "{spec}masterConfig.imageUri"),
    "args": ("{spec}workerPoolSpecs.0.containerSpec.args", "{spec}args"),
    "env": ("{spec}workerPoolSpecs.0.containerSpec.env", None),
    "scheduling": ("{spec}scheduling", "{spec}scheduling"),
    "scheduling.timeout": (None, "{spec}scheduling.maxRunningTime"),
    "scheduling.max_wait": ("{spec}scheduling.maxWaitDuration", "{spec}scheduling.maxWaitTime"),
    "service_account": ("{spec}serviceAccount", "{spec}serviceAccount"),
    "network": ("{spec}network", "{spec}network"),
    "tensorboard": ("{spec}tensorboard", None),
    "experiment": ("{spec}experiment", None),
    "experiment_run": ("{spec}experimentRun", None),
    "reservation": ("{spec}workerPoolSpecs", None),
    "persistent_resource": ("{spec}persistentResourceId", None),
    "web_access": ("{spec}enableWebAccess", "{spec}enableWebAccess"),
    "reduction_server": ("{spec}workerPoolSpecs.2", None),
    "tuning": ("studySpec", "{spec}hyperparameters"),
    "tuning.parameters": (None, "{spec}hyperparameters.params"),
    "tuning.trials": ("maxTrialCount", "{spec}hyperparameters.maxTrials"),
    "tuning.parallel_trials": ("parallelTrialCount", "{spec}hyperparameters.maxParallelTrials"),
    "vertex": ("", None),
    "vertex.jobSpec": ("{spec}", None),
    "vertex.trialJobSpec": ("{spec}", None),
    "vertex.encryptionSpec": (None, "{spec}encryptionConfig"),
}
_POOL_FIELDS = {
    "": ("{pool}", "{pool}Type"),
    ".machine": ("{pool}.machineSpec.machineType", "{pool}Type"),
    ".accelerator": ("{pool}.machineSpec", "{pool}Config.acceleratorConfig"),
    ".accelerator.type": ("{pool}.machineSpec.acceleratorType", None),
    ".accelerator.count": ("{pool}.machineSpec.acceleratorCount", None),
    ".count": ("{pool}.replicaCount", "{pool}Count"),
    ".image": ("{pool}.containerSpec.imageUri", "{pool}Config.imageUri"),
}
_SPECS = ("jobSpec", "trialJobSpec", "job_spec", "trial_job_spec")
_KEY = re.compile(r"[a-z_]+(\.[\w-]+)*")
_ONLY_IN_CONFIG = ("cluster.", "reduction_server")  # what --config replaces in distlaunch.yaml


def locate(problems: Iterable[Problem], launch: LaunchRequest) -> tuple[Problem, ...]:
    """Return problems with the location of the keys that they are about.

    That is the option of the command line that set the key; else file, line and column. With
    ``--config`` keys are translated to the fields of that file; remedies are not.
    """
    own = _File(launch.folder / FILE_NAME)
    config = _ConfigFile(launch.config) if launch.config else None
    return tuple(
        _located(problem, launch, own, config) if _is_key(problem.where) else problem
        for problem in problems
    )


def _located(
    problem: Problem, launch: LaunchRequest, own: _File, config: _ConfigFile | None
) -> Problem:
    key = problem.where
    if option := _option(problem, launch):
        return replace(problem, where=option)
    own_path = _path(key)
    own_steps, own_location = own.match(own_path)
    path = config.path(key) if config else None
    if config and path is not None:
        steps, location = config.match(path)
        is_in_own = own_steps == len(own_path) or own_steps > steps
        if steps == len(path) or key.startswith(_ONLY_IN_CONFIG) or not is_in_own:
            return replace(problem, where=f"{location}: {dotted_path(path)}")
    return replace(problem, where=f"{own_location}: {key}")


def _option(problem: Problem, launch: LaunchRequest) -> str | None:
    """Return the option of the command line that set a key or a part of it."""
    key = problem.where
    for override in launch.overrides:
        name = override.partition("=")[0]
        if f"{key}.".startswith(f"{name}.") or f"{name}.".startswith(f"{key}."):
            return f"--set {name}"
    options = (word.partition("=")[0] for word in launch.program_args if word.startswith("-"))
    if key == "args" and any(option in problem.what for option in options):
        return "arguments after --"
    return launch.cli_overrides.get(key)


def _is_key(where: str) -> bool:
    from distlaunch.job.schema import JobSection

    return bool(_KEY.fullmatch(where)) and where.partition(".")[0] in JobSection.model_fields


class _File:
    """A file of a job; `document` is None if it cannot be read or does not exist."""

    def __init__(self, path: Path) -> None:
        self.name = display_path(path)
        self.document = _document(path)

    def match(self, path: _Path) -> tuple[int, str]:
        """Return how many steps of a path the file has, and the location of the last one."""
        document, matched = self.document, _Path()
        for step in path if document else ():
            names = (step, _snake_case(step)) if isinstance(step, str) else (step,)
            longer = [(*matched, name) for name in names]
            known = [each for each in longer if document and document.holds(each)]
            if not known:
                break
            matched = known[0]
        if not matched or document is None:
            return 0, self.name
        mark = document.location(matched)
        return len(matched), f"{self.name}:{mark.line}:{mark.column}"


def _document(path: Path) -> Document | None:
    from distlaunch.job.yaml_document import Document, YamlProblem, read_text

    try:
        return Document(read_text(path))
    except (DistlaunchError, YamlProblem):
        return None


class _ConfigFile(_File):
    """A file of ``--config``: AI Platform's job, a CustomJobSpec, CustomJob or tuning job."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        data: Mapping[str, Any] = self.document.data if self.document else {}
        self._is_ai_platform = ai_platform.is_training_input(data)
        spec = next((f"{name}." for name in _SPECS if name in data), "")
        pools = [f"{spec}workerPoolSpecs.{index}" for index in range(len(POOL_ROLES))]
        if self._is_ai_platform:
            spec = "trainingInput."
            pools = [f"{spec}{role.ai_platform}" for role in POOL_ROLES]
        self._fields = {
            f"cluster.{role.field}{key}": self._field(pair, pool=pool)
            for role, pool in zip(POOL_ROLES, pools, strict=True)
            for key, pair in _POOL_FIELDS.items()
        }
        self._fields |= {key: self._field(pair, spec=spec) for key, pair in _FIELDS.items()}

    def _field(self, pair: tuple[str | None, str | None], **names: str) -> str | None:
        text = pair[self._is_ai_platform]
        return None if text is None else text.format(**names)

    def path(self, key: str) -> _Path | None:
        """Return where the file has, or would have, a key of distlaunch.yaml."""
        steps = key.split(".")
        for length in range(len(steps), 0, -1):
            field = self._fields.get(".".join(steps[:length]))
            if field is not None:
                return _path(".".join([field, *steps[length:]]))
        return None


def _path(key: str) -> _Path:
    return tuple(int(step) if step.isdecimal() else step for step in key.split(".") if step)


def _snake_case(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
