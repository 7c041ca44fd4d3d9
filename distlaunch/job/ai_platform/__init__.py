"""AI Platform's job format, a ``config.yaml`` with ``trainingInput``, as in ml.googleapis.com v1.

As in distlaunch.yaml, every value is the text of the file. Names are in camelCase or snake_case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, model_validator
from pydantic.alias_generators import to_snake

from distlaunch.job.machine_catalogue import suggest_accelerator
from distlaunch.job.schema import Section
from distlaunch.job.validation import validate
from distlaunch.job.value_types import NonNegativeInt, Number, Text, expected_error, one_of, text
from distlaunch.job.vertex.fields import json_name
from distlaunch.job.yaml_document import YamlProblem, job_file_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.yaml_document import Document
    from distlaunch.job.yaml_document import Path as FieldPath

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


_TRAINING = ("trainingInput", "training_input")
_PREDICTION = ("predictionInput", "prediction_input")
_FIELDS = ("scaleTier", "scale_tier", "masterType", "master_type", "masterConfig")


@dataclass(slots=True)
class AiPlatformFile:
    """A file in AI Platform's format, in Google's JSON names, and a report of its translation.

    Warnings are about changed or ignored fields, errors about fields without an equivalent.
    """

    path: Path
    document: Document
    job: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    errors: list[YamlProblem] = field(default_factory=list)

    @property
    def training_input(self) -> dict[str, Any]:
        """The content of ``trainingInput``."""
        content: dict[str, Any] = self.job["trainingInput"]
        return content

    def warn(self, name: str, text: str) -> None:
        """Add a warning about a field of ``trainingInput``, such as ``masterConfig.imageUri``."""
        self.warnings.append(f"{name}: {text}")

    def error(self, name: str, text: str) -> None:
        """Add an error about a field of ``trainingInput``, with the choices."""
        path, exists = self._path(name)
        location = self.document.location(path, of_key=not exists)
        self.errors.append(YamlProblem(location, text, f"trainingInput.{name}"))

    def _path(self, name: str) -> tuple[FieldPath, bool]:
        """Return the path of a field as the file writes it, and whether all of it exists."""
        path: FieldPath = ()
        for part in ["trainingInput", *name.split(".")]:
            steps = [int(part)] if part.isdecimal() else [part, to_snake(part)]
            step = next((step for step in steps if self.document.holds((*path, step))), None)
            if step is None:
                return path, False
            path = (*path, step)
        return path, True


def is_training_input(data: Mapping[str, Any]) -> bool:
    """Return whether a file is in AI Platform's format, even if ``trainingInput`` is missing."""
    return not data.keys().isdisjoint({*_TRAINING, *_PREDICTION, *_FIELDS})


def read(document: Document, path: Path) -> AiPlatformFile:
    """Parse a file in camelCase or snake_case; raise all its problems as a JobFileError."""
    misplaced = _misplaced(document)
    if misplaced:
        raise job_file_error(path, [*document.problems, misplaced])
    job, problems = validate(document, AiPlatformJob)
    if job is None or problems:
        raise job_file_error(path, problems)
    return AiPlatformFile(path, document, job.model_dump(by_alias=True, exclude_none=True))


def _misplaced(document: Document) -> YamlProblem | None:
    """Return the problem of a file that is not a training job as a whole."""
    key = next((key for key in document.data if key in _PREDICTION), None)
    message = "a batch prediction, which ended with AI Platform; only training runs"
    if key is None and not any(key in document.data for key in _TRAINING):
        key = next(iter(document.data))
        message = "expected under 'trainingInput:', each line indented by two more spaces"
    if key is None:
        return None
    return YamlProblem(document.location((key,), of_key=True), message, key)
