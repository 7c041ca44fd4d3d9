"""The schema of AI Platform's job format, as in ml.googleapis.com v1.

As in distlaunch.yaml, every value is the text of the file. Names are in camelCase or snake_case.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, PlainSerializer, model_validator
from pydantic.alias_generators import to_camel

from distlaunch.job.machine_catalogue import suggest_accelerator
from distlaunch.job.schema import NonNegativeInt, Section, Text, expected_error, one_of, text

ScaleTier = Literal["BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU", "BASIC_TPU", "CUSTOM"]
AcceleratorType = Literal[
    "ACCELERATOR_TYPE_UNSPECIFIED",
    "NVIDIA_TESLA_K80",
    "NVIDIA_TESLA_P100",
    "NVIDIA_TESLA_V100",
    "NVIDIA_TESLA_P4",
    "NVIDIA_TESLA_T4",
    "NVIDIA_TESLA_A100",
    "TPU_V2",
    "TPU_V3",
    "TPU_V2_POD",
    "TPU_V3_POD",
    "TPU_V4_POD",
]
Goal = Literal["GOAL_TYPE_UNSPECIFIED", "MAXIMIZE", "MINIMIZE"]
Algorithm = Literal["ALGORITHM_UNSPECIFIED", "GRID_SEARCH", "RANDOM_SEARCH"]
ParameterType = Literal[
    "PARAMETER_TYPE_UNSPECIFIED", "DOUBLE", "INTEGER", "CATEGORICAL", "DISCRETE"
]
ScaleType = Literal["NONE", "UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"]

_TRUE = ("true", "yes", "on")  # as YAML 1.1 has them
_FALSE = ("false", "no", "off")
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


def to_camel_case(name: str) -> str:
    """Return a field's JSON name, for either spelling."""
    return to_camel(name) if "_" in name else name


def _parse_flag(value: Any) -> bool:
    word = str(value).lower()
    if word not in _TRUE + _FALSE:
        raise expected_error("true or false")
    return word in _TRUE


def _parse_number(value: Any) -> int | float:
    try:
        number = int(value) if _WHOLE.fullmatch(str(value)) else float(value)
        is_finite = math.isfinite(number)
    except (TypeError, ValueError, OverflowError):
        raise expected_error("a number") from None
    if not is_finite:
        raise expected_error("a number")
    return number


Flag = Annotated[bool, BeforeValidator(_parse_flag)]
Number = Annotated[int | float, BeforeValidator(_parse_number)]
Duration = Annotated[str, text("seconds with their unit, such as 7200s", r"[0-9]+(\.[0-9]{1,9})?s")]
Int64 = Annotated[NonNegativeInt, PlainSerializer(str)]  # text in JSON


class AiPlatformSection(Section):
    """A section with Google's names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _check_spellings(cls, data: Any) -> Any:
        for name in data if isinstance(data, dict) else ():
            if to_camel_case(name) != name and to_camel_case(name) in data:
                raise expected_error(f"{to_camel_case(name)} or {name} and not both")
        return data


class AcceleratorConfig(AiPlatformSection):
    """``acceleratorConfig``: the accelerators of one machine."""

    count: Int64 | None = None
    type: (
        Annotated[AcceleratorType, one_of(*get_args(AcceleratorType), suggest=suggest_accelerator)]
        | None
    ) = None


class DiskConfig(AiPlatformSection):
    """``diskConfig``: the disk that a machine starts from."""

    boot_disk_type: Text | None = None
    boot_disk_size_gb: NonNegativeInt | None = None


class ReplicaConfig(AiPlatformSection):
    """``masterConfig``, ``workerConfig``, …: the machines of a pool and what they run."""

    accelerator_config: AcceleratorConfig | None = None
    image_uri: Text | None = None
    tpu_tf_version: Text | None = None
    disk_config: DiskConfig | None = None
    container_command: tuple[Text, ...] | None = None
    container_args: tuple[Text, ...] | None = None


class EncryptionConfig(AiPlatformSection):
    """``encryptionConfig``."""

    kms_key_name: Text | None = None


class SchedulingConfig(AiPlatformSection):
    """``scheduling``."""

    max_running_time: Duration | None = None
    max_wait_time: Duration | None = None
    priority: NonNegativeInt | None = None


class ParameterSpec(AiPlatformSection):
    """One of ``hyperparameters.params``."""

    parameter_name: Text | None = None
    type: Annotated[ParameterType, one_of(*get_args(ParameterType))] | None = None
    min_value: Number | None = None
    max_value: Number | None = None
    categorical_values: tuple[Text, ...] | None = None
    discrete_values: tuple[Number, ...] | None = None
    scale_type: Annotated[ScaleType, one_of(*get_args(ScaleType))] | None = None


class HyperparameterSpec(AiPlatformSection):
    """``hyperparameters``: a search for the best values of the program's options."""

    goal: Annotated[Goal, one_of(*get_args(Goal))] | None = None
    params: tuple[ParameterSpec, ...] | None = None
    max_trials: NonNegativeInt | None = None
    max_parallel_trials: NonNegativeInt | None = None
    max_failed_trials: NonNegativeInt | None = None
    hyperparameter_metric_tag: Text | None = None
    resume_previous_job_id: Text | None = None
    enable_trial_early_stopping: Flag | None = None
    algorithm: Annotated[Algorithm, one_of(*get_args(Algorithm))] | None = None


class TrainingInput(AiPlatformSection):
    """``trainingInput``, with the fields of GoogleCloudMlV1__TrainingInput; None if not set."""

    scale_tier: Annotated[ScaleTier, one_of(*get_args(ScaleTier))] | None = None
    master_type: Text | None = None
    master_config: ReplicaConfig | None = None
    worker_type: Text | None = None
    worker_config: ReplicaConfig | None = None
    worker_count: Int64 | None = None
    parameter_server_type: Text | None = None
    parameter_server_config: ReplicaConfig | None = None
    parameter_server_count: Int64 | None = None
    evaluator_type: Text | None = None
    evaluator_config: ReplicaConfig | None = None
    evaluator_count: Int64 | None = None
    package_uris: tuple[Text, ...] | None = None
    python_module: Text | None = None
    args: tuple[Text, ...] | None = None
    hyperparameters: HyperparameterSpec | None = None
    region: Text | None = None
    job_dir: Text | None = None
    runtime_version: Text | None = None
    python_version: Text | None = None
    encryption_config: EncryptionConfig | None = None
    scheduling: SchedulingConfig | None = None
    network: Text | None = None
    service_account: Text | None = None
    use_chief_in_tf_config: Flag | None = None
    enable_web_access: Flag | None = None

    def dump(self) -> dict[str, Any]:
        """Return plain data in Google's JSON names, without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class AiPlatformJob(AiPlatformSection):
    """A whole job: ``trainingInput``, its id and labels, and output-only fields."""

    training_input: TrainingInput
    job_id: Text | None = None
    labels: dict[Text, Text] | None = None
    create_time: Any = None
    start_time: Any = None
    end_time: Any = None
    state: Any = None
    error_message: Any = None
    job_position: Any = None
    etag: Any = None
    training_output: Any = None


# Fields that the service set in a job, of any type.
OUTPUT_ONLY_FIELDS = frozenset(
    str(field.alias) for field in AiPlatformJob.model_fields.values() if field.annotation is Any
)
