"""The fields of a `--config` file that correspond to the keys of distlaunch.yaml."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distlaunch.checks.request_view import ROLES
from distlaunch.job import ai_platform

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

Path = tuple[str | int, ...]

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


class ConfigFields:
    """The fields of one file.

    Parameters
    ----------
    data
        Its content: AI Platform's job, or a CustomJobSpec, CustomJob or HyperparameterTuningJob.
    """

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

    def path(self, key: str) -> Path | None:
        """Return where the file has, or would have, a key of distlaunch.yaml."""
        steps = key.split(".")
        for length in range(len(steps), 0, -1):
            field = self._fields.get(".".join(steps[:length]))
            if field is not None:
                parts = [*filter(None, field.split(".")), *steps[length:]]
                return tuple(int(part) if part.isdecimal() else part for part in parts)
        return None

    def translate(self, remedy: str, key: str) -> str:
        """Return a remedy in the words of the file.

        Parameters
        ----------
        key
            The key that the problem is about.
        """
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
        remedy = _MENTION.sub(lambda mention: self._written(mention[0]), remedy)
        for leaf, full in leaves.items():
            path = self.path(full)
            if path:
                remedy = re.sub(rf"(?<![\w.{{])(?<!, ){leaf}: ", f"{path[-1]}: ", remedy)
        return remedy

    def _written(self, key: str) -> str:
        path = self.path(key)
        return written(path) if path else key


def written(path: Path) -> str:
    """Return a path as errors of files write it, such as ``workerPoolSpecs[1].replicaCount``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")
