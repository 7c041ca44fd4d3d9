"""The schema of AI Platform's job format, as in ml.googleapis.com v1.

As in distlaunch.yaml, every value is the text of the file. Names are in camelCase or snake_case.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, model_validator

from distlaunch.job.machine_catalogue import suggest_accelerator
from distlaunch.job.schema import (
    NonNegativeInt,
    Number,
    Section,
    Text,
    expected_error,
    one_of,
    text,
)
from distlaunch.job.vertex.fields import json_name

ACCELERATORS = (
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
)
ScaleTier = Annotated[
    str, one_of("BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU", "BASIC_TPU", "CUSTOM")
]
AcceleratorType = Annotated[str, one_of(*ACCELERATORS, suggest=suggest_accelerator)]
Goal = Annotated[str, one_of("GOAL_TYPE_UNSPECIFIED", "MAXIMIZE", "MINIMIZE")]
Algorithm = Annotated[str, one_of("ALGORITHM_UNSPECIFIED", "GRID_SEARCH", "RANDOM_SEARCH")]
ParameterType = Annotated[
    str, one_of("PARAMETER_TYPE_UNSPECIFIED", "DOUBLE", "INTEGER", "CATEGORICAL", "DISCRETE")
]
ScaleType = Annotated[
    str, one_of("NONE", "UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")
]

Seconds = Annotated[str, text("seconds with their unit, such as 7200s", r"[0-9]+(\.[0-9]{1,9})?s")]


class AiPlatformSection(Section):
    """A section with Google's names."""

    model_config = ConfigDict(alias_generator=json_name, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _check_spellings(cls, data: Any) -> Any:
        for name in data if isinstance(data, dict) else ():
            if json_name(name) != name and json_name(name) in data:
                raise expected_error(f"{json_name(name)} or {name} and not both")
        return data


class AcceleratorConfig(AiPlatformSection):
    """``acceleratorConfig``: the accelerators of one machine."""

    count: NonNegativeInt | None = None
    type: AcceleratorType | None = None


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
    container_command: list[Text] | None = None
    container_args: list[Text] | None = None


class EncryptionConfig(AiPlatformSection):
    """``encryptionConfig``."""

    kms_key_name: Text | None = None


class SchedulingConfig(AiPlatformSection):
    """``scheduling``."""

    max_running_time: Seconds | None = None
    max_wait_time: Seconds | None = None
    priority: NonNegativeInt | None = None


class ParameterSpec(AiPlatformSection):
    """One of ``hyperparameters.params``."""

    parameter_name: Text | None = None
    type: ParameterType | None = None
    min_value: Number | None = None
    max_value: Number | None = None
    categorical_values: list[Text] | None = None
    discrete_values: list[Number] | None = None
    scale_type: ScaleType | None = None


class HyperparameterSpec(AiPlatformSection):
    """``hyperparameters``: a search for the best values of the program's options."""

    goal: Goal | None = None
    params: list[ParameterSpec] | None = None
    max_trials: NonNegativeInt | None = None
    max_parallel_trials: NonNegativeInt | None = None
    max_failed_trials: NonNegativeInt | None = None
    hyperparameter_metric_tag: Text | None = None
    resume_previous_job_id: Text | None = None
    enable_trial_early_stopping: bool | None = None
    algorithm: Algorithm | None = None


class TrainingInput(AiPlatformSection):
    """``trainingInput``, with the fields of GoogleCloudMlV1__TrainingInput."""

    scale_tier: ScaleTier | None = None
    master_type: Text | None = None
    master_config: ReplicaConfig | None = None
    worker_type: Text | None = None
    worker_config: ReplicaConfig | None = None
    worker_count: NonNegativeInt | None = None
    parameter_server_type: Text | None = None
    parameter_server_config: ReplicaConfig | None = None
    parameter_server_count: NonNegativeInt | None = None
    evaluator_type: Text | None = None
    evaluator_config: ReplicaConfig | None = None
    evaluator_count: NonNegativeInt | None = None
    package_uris: list[Text] | None = None
    python_module: Text | None = None
    args: list[Text] | None = None
    hyperparameters: HyperparameterSpec | None = None
    region: Text | None = None
    job_dir: Text | None = None
    runtime_version: Text | None = None
    python_version: Text | None = None
    encryption_config: EncryptionConfig | None = None
    scheduling: SchedulingConfig | None = None
    network: Text | None = None
    service_account: Text | None = None
    use_chief_in_tf_config: bool | None = None
    enable_web_access: bool | None = None


class AiPlatformJob(AiPlatformSection):
    """A whole job: ``trainingInput``, its id and labels, and output-only fields of any type."""

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
