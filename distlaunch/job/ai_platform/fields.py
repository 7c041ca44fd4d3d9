"""The fields of AI Platform's ``trainingInput``, and those of Vertex AI's jobs that mean the same.

All data is plain, in Google's JSON names; a field inside another is written ``section.field``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

JOB_FIELDS = {
    "encryptionConfig.kmsKeyName": "encryptionSpec.kmsKeyName",
    "hyperparameters.maxTrials": "maxTrialCount",
    "hyperparameters.maxParallelTrials": "parallelTrialCount",
    "hyperparameters.maxFailedTrials": "maxFailedTrialCount",
    "hyperparameters.algorithm": "studySpec.algorithm",
}
"""Of a CustomJob or a HyperparameterTuningJob."""

SPEC_FIELDS = {
    "jobDir": "baseOutputDirectory.outputUriPrefix",
    "scheduling.maxRunningTime": "scheduling.timeout",
    "scheduling.maxWaitTime": "scheduling.maxWaitDuration",
    "network": "network",
    "serviceAccount": "serviceAccount",
    "enableWebAccess": "enableWebAccess",
}
"""Of a CustomJobSpec."""

CONFIG_FIELDS = {
    "acceleratorConfig.type": "machineSpec.acceleratorType",
    "acceleratorConfig.count": "machineSpec.acceleratorCount",
    "diskConfig.bootDiskType": "diskSpec.bootDiskType",
    "diskConfig.bootDiskSizeGb": "diskSpec.bootDiskSizeGb",
    "imageUri": "containerSpec.imageUri",
    "containerCommand": "containerSpec.command",
    "containerArgs": "containerSpec.args",
}
"""Of a worker pool, in ``masterConfig``, ``workerConfig`` …"""

_PARAMETER_FIELDS = {
    "parameterName": "parameterId",
    "scaleType": "scaleType",
    "minValue": "VALUES.minValue",
    "maxValue": "VALUES.maxValue",
}  # VALUES is one of:
_VALUES = {
    "DOUBLE": "doubleValueSpec",
    "INTEGER": "integerValueSpec",
    "CATEGORICAL": "categoricalValueSpec",
    "DISCRETE": "discreteValueSpec",
}
_EARLY_STOPPING = "medianAutomatedStoppingSpec"


def move_fields(source: dict[str, Any], target: dict[str, Any], names: Mapping[str, str]) -> None:
    """Move fields from one section to another; `names` are the old names and the new ones."""
    for name, new_name in names.items():
        value = _pop(source, name)
        if value is not None and value != []:
            *sections, leaf = new_name.split(".")
            section = target
            for each in sections:
                section = section.setdefault(each, {})
            section[leaf] = value


def reverse(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the names at AI Platform of a table's fields at Vertex AI."""
    return {vertex_name: name for name, vertex_name in fields.items()}


def _pop(section: dict[str, Any], name: str) -> Any:
    """Remove and return a field; sections that are empty without it are removed, too."""
    first, _, rest = name.partition(".")
    if not rest:
        return section.pop(first, None)
    inner = section.get(first, {})
    value = _pop(inner, rest)
    if not inner:
        section.pop(first, None)
    return value


def to_study(hyperparameters: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return ``studySpec`` of valid ``hyperparameters``, without the fields of `JOB_FIELDS`."""
    goal = "MINIMIZE" if hyperparameters.get("goal") == "MINIMIZE" else "MAXIMIZE"
    study: dict[str, Any] = {
        "metrics": [{"metricId": metric, "goal": goal}],
        "parameters": [_to_parameter(dict(each)) for each in hyperparameters["params"]],
    }
    if hyperparameters.get("enableTrialEarlyStopping"):
        study[_EARLY_STOPPING] = {}
    return study


def from_study(study: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields of a search from ``studySpec``; return them as ``hyperparameters``."""
    [metric] = study.pop("metrics")
    parameters = [_from_parameter(each) for each in study.pop("parameters")]
    hyperparameters = {"goal": metric["goal"], "hyperparameterMetricTag": metric["metricId"]}
    if study.pop(_EARLY_STOPPING, None) is not None:
        hyperparameters["enableTrialEarlyStopping"] = True
    return {**hyperparameters, "params": parameters}


def _to_parameter(param: dict[str, Any]) -> dict[str, Any]:
    kind = param["type"]
    number = int if kind == "INTEGER" else float
    for name in ("minValue", "maxValue"):
        if name in param:
            param[name] = number(param[name])
    if "discreteValues" in param:
        param["discreteValues"] = sorted(map(float, param["discreteValues"]))
    if param.get("scaleType") == "NONE" or kind == "CATEGORICAL":
        param.pop("scaleType", None)
    parameter: dict[str, Any] = {}
    move_fields(param, parameter, _parameter_names(kind))
    return parameter


def _from_parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    kind = next(kind for kind, spec in _VALUES.items() if spec in parameter)
    param = {"type": kind}
    move_fields(parameter, param, reverse(_parameter_names(kind)))
    return param


def _parameter_names(kind: str) -> dict[str, str]:
    names = _PARAMETER_FIELDS | {f"{kind.lower()}Values": "VALUES.values"}
    return {name: each.replace("VALUES", _VALUES[kind]) for name, each in names.items()}
