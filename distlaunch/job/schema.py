"""The sections of distlaunch.yaml, and which values each key takes.

A valid section becomes the part of a `Job` that it describes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from distlaunch.job.model import (
    ChoiceParameter,
    Cluster,
    Image,
    Kubernetes,
    Machine,
    MachineChoice,
    Pool,
    RangeParameter,
    ReductionServer,
    Scheduling,
    Slurm,
    StopIf,
    Tuning,
)
from distlaunch.job.value_types import (
    AcceleratorName,
    AccountEmail,
    ArgumentName,
    Bucket,
    Duration,
    ImageName,
    JobName,
    KubernetesName,
    LabelName,
    LabelValue,
    MachineTypeName,
    ModuleName,
    NonEmptyLine,
    NonNegativeInt,
    Number,
    Parsed,
    PersistentResourceId,
    PositiveInt,
    PositiveNumber,
    ProjectId,
    RegionName,
    RelativePath,
    Repository,
    Reservation,
    SbatchOption,
    ScriptPath,
    Share,
    SharedPath,
    SlurmName,
    StageName,
    Text,
    VariableName,
    expected_error,
    one_of,
    or_default,
)

if TYPE_CHECKING:
    from pydantic import ModelWrapValidatorHandler

_MINUTE = 60  # seconds


class Section(BaseModel):
    """A section of the file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    builds: ClassVar[Callable[..., Any] | None] = None
    """What is called with the values of a valid section, and replaces it."""

    @model_validator(mode="wrap")
    @classmethod
    def _build(cls, data: Any, handler: ModelWrapValidatorHandler[Section]) -> Any:
        section = handler(data)
        return cls.builds(**dict(section)) if cls.builds else section


class AcceleratorSection(Section):
    """``accelerator``."""

    type: AcceleratorName
    count: PositiveInt = 1


def _pool(
    machine: str | None, accelerator: AcceleratorSection | None, gpus: int | None, count: int = 1
) -> Pool:
    kind, number = (accelerator.type, accelerator.count) if accelerator else (None, 0)
    return Pool(Machine(machine or "", kind, number, gpus), count)


class ChiefSection(Section):
    """``cluster.chief``: one machine; Vertex AI needs its type, and Slurm the number of GPUs."""

    builds = _pool

    machine: MachineTypeName | None = None
    accelerator: AcceleratorSection | None = None
    gpus: NonNegativeInt | None = None


class PoolSection(ChiefSection):
    """The other pools of ``cluster``."""

    count: NonNegativeInt = 1


class ClusterSection(Section):
    """``cluster``."""

    builds = Cluster

    chief: Annotated[ChiefSection, or_default(dict)]
    workers: PoolSection | None = None
    parameter_servers: PoolSection | None = None
    evaluators: PoolSection | None = None


class ImageSection(Section):
    """``image``."""

    builds = Image

    repository: Repository | None = None
    base: ImageName | None = None
    requirements: RelativePath | None = None
    include: Annotated[tuple[RelativePath, ...] | None, or_default(tuple)] = None
    allow_secrets: Annotated[tuple[RelativePath, ...] | None, or_default(tuple)] = None
    dockerfile: RelativePath | None = None
    target: StageName | None = None
    build_args: Annotated[dict[ArgumentName, Text] | None, or_default(dict)] = None
    uri: ImageName | None = None
    builder: Annotated[str, one_of("auto", "cloud-build")] = "auto"


def _parse_replicas(value: Any) -> int | None:
    """Return the number of replicas, None for ``auto``."""
    if value in ("auto", None):
        return None
    if not re.fullmatch(r"0*[1-9][0-9]{0,18}", str(value), re.ASCII):
        raise expected_error("auto or a whole number of 1 or more")
    return int(value)


class ReductionServerSection(Section):
    """``reduction_server``."""

    builds = ReductionServer

    replicas: Annotated[
        int | None,
        Parsed(_parse_replicas, {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
    ] = None


class SlurmSection(Section):
    """``slurm``."""

    builds = Slurm

    folder: SharedPath | None = None
    python: SharedPath | None = None
    partition: SlurmName | None = None
    account: SlurmName | None = None
    time: Duration | None = None
    options: Annotated[tuple[SbatchOption, ...] | None, or_default(tuple)] = None
    container: Annotated[str, one_of("pyxis", "apptainer")] | None = None


class KubernetesSection(Section):
    """``kubernetes``."""

    builds = Kubernetes

    namespace: KubernetesName | None = None
    queue: KubernetesName | None = None
    service_account: KubernetesName | None = None
    restarts: NonNegativeInt = 3
    mount_bucket: bool = False


def _machine(machine: str, accelerator: AcceleratorSection | None = None) -> Machine:
    return _pool(machine, accelerator, None).machine


class MachineSection(Section):
    """The machine of a pool among ``scheduling.machines``."""

    builds = _machine

    machine: MachineTypeName
    accelerator: AcceleratorSection | None = None


def _machine_choice(
    machine: str | None, accelerator: AcceleratorSection | None, **pools: Machine | None
) -> MachineChoice:
    named = {field: pool for field, pool in pools.items() if pool}
    if (machine is None) == (not named) or (machine is None and accelerator):
        raise expected_error("either a machine for all pools, or the machines of pools by name")
    return MachineChoice(_machine(machine, accelerator) if machine else None, named)


class MachineChoiceSection(Section):
    """One of ``scheduling.machines``: a machine for all pools, or one for each pool."""

    builds = _machine_choice

    machine: MachineTypeName | None = None
    accelerator: AcceleratorSection | None = None
    chief: MachineSection | None = None
    workers: MachineSection | None = None
    parameter_servers: MachineSection | None = None
    evaluators: MachineSection | None = None


def _stop_if(gpu_below: float, for_: int) -> StopIf:
    if for_ < _MINUTE:
        raise expected_error("for: 1m or more, as the use of GPUs is judged once a minute")
    return StopIf(gpu_below, for_)


class StopIfSection(Section):
    """``stop_if``."""

    builds = _stop_if

    gpu_below: Share
    for_: Duration = Field(alias="for")


class SchedulingSection(Section):
    """``scheduling``."""

    builds = Scheduling

    strategy: Annotated[str, one_of("STANDARD", "SPOT", "FLEX_START")] = "STANDARD"
    timeout: Duration | None = None
    max_wait: Duration | None = None
    regions: tuple[RegionName, ...] = ()
    machines: tuple[MachineChoiceSection, ...] = ()
    on_stockout: Annotated[str, one_of("next-machine", "next-region", "fail")] | None = None
    max_cost: PositiveNumber | None = None


def _plain_word(value: Any) -> Any:
    """Return a word of a search as it is here: Vertex AI has MAXIMIZE and UNIT_LOG_SCALE."""
    if not isinstance(value, str):
        return value
    word = re.sub(r"^unit_|_(scale|search)$", "", value.lower())
    return {"discrete": "double", "categorical": None}.get(word, word)  # of AI Platform


_PLAIN_WORD = BeforeValidator(_plain_word)


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _parameter(**values: Any) -> RangeParameter | ChoiceParameter:
    """Return a tuned parameter; one that is numeric has values that the search orders."""
    kind, scale, choices = values["type"], values["scale"], values["values"]
    ends = values["min"], values["max"]
    if kind is None and choices and scale != "linear" and all(map(_is_number, choices)):
        kind = "double"
    if choices is not None and ends == (None, None) and kind != "integer":
        if kind == "double" and not all(map(_is_number, choices)):
            raise expected_error("numbers as values, such as [0.1, 0.01], for the type double")
        if kind is None and scale != "linear":
            raise expected_error("numbers as values with a scale, or no scale")
        return ChoiceParameter(choices, kind == "double", scale)
    if choices is not None or kind is None or None in ends:
        raise expected_error("either min and max or a list of values")
    if ends[0] > ends[1]:
        raise expected_error("a min that is not above max")
    if kind == "integer" and any(end % 1 for end in ends):
        raise expected_error("integers as min and max of the type integer")
    return RangeParameter(*ends, kind == "integer", scale)


class ParameterSection(Section):
    """One of ``tuning.parameters``: a range of numbers or a list of values."""

    builds = _parameter

    type: Annotated[Annotated[str, one_of("integer", "double")] | None, _PLAIN_WORD] = None
    min: Number | None = None
    max: Number | None = None
    scale: Annotated[str, one_of("linear", "log", "reverse_log"), _PLAIN_WORD] = "linear"
    values: Annotated[tuple[NonEmptyLine, ...], Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _infer_type(cls, data: Any) -> Any:
        """Take the type of a range from how its numbers are written: 1 or 1.0."""
        if not isinstance(data, dict) or data.get("type") or not {"min", "max"} <= data.keys():
            return data
        is_whole = all(re.fullmatch(r"[+-]?[0-9]+", str(data[end])) for end in ("min", "max"))
        return data | {"type": "integer" if is_whole else "double"}


class TuningSection(Section):
    """``tuning``."""

    builds = Tuning

    metric: NonEmptyLine
    goal: Annotated[str, one_of("maximize", "minimize"), _PLAIN_WORD]
    parameters: Annotated[dict[NonEmptyLine, ParameterSection], Field(min_length=1)]
    trials: PositiveInt
    parallel_trials: PositiveInt = 1
    algorithm: Annotated[str, one_of("bayesian", "grid", "random"), _PLAIN_WORD] = "bayesian"


class JobSection(Section):
    """The whole file: the fields of a `Job`."""

    name: JobName
    project: ProjectId | None = None
    region: RegionName | None = None
    bucket: Bucket | None = None
    module: ModuleName = "trainer.task"
    script: ScriptPath | None = None
    script_module: ModuleName | None = None
    trainer_options: Annotated[tuple[Text, ...] | None, or_default(tuple)] = None
    args: Annotated[tuple[Text, ...] | None, or_default(tuple)] = None
    image: Annotated[ImageSection | None, or_default(dict)] = None
    cluster: ClusterSection
    scheduling: Annotated[SchedulingSection | None, or_default(dict)] = None
    env: Annotated[dict[VariableName, Text] | None, or_default(dict)] = None
    labels: Annotated[dict[LabelName, LabelValue] | None, or_default(dict)] = None
    service_account: AccountEmail | None = None
    network: NonEmptyLine | None = None
    tensorboard: NonEmptyLine | None = None
    experiment: NonEmptyLine | None = None
    experiment_run: NonEmptyLine | None = None
    reservation: Reservation | None = None
    persistent_resource: PersistentResourceId | None = None
    web_access: bool = False
    reduction_server: ReductionServerSection | None = None
    tuning: TuningSection | None = None
    engine: Annotated[str, one_of("vertex", "slurm")] = "vertex"
    slurm: Annotated[SlurmSection | None, or_default(dict)] = None
    kubernetes: Annotated[KubernetesSection | None, or_default(dict)] = None
    stop_if: StopIfSection | None = None
    vertex: Annotated[dict[str, Any] | None, or_default(dict)] = None
