"""The schema of distlaunch.yaml: its sections, and which values each key takes.

Every value arrives as the text of the file (see `yaml_document`), so each type here begins with a
function that parses text, and raises an error with what it expected. A valid section becomes the
part of a `Job` that it describes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError, core_schema

from distlaunch.errors import did_you_mean
from distlaunch.job.model import (
    JOB_NAME,
    ChoiceParameter,
    Cluster,
    Image,
    Kubernetes,
    Machine,
    Pool,
    RangeParameter,
    ReductionServer,
    Scheduling,
    Slurm,
    Tuning,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import (
        GetCoreSchemaHandler,
        GetJsonSchemaHandler,
        ModelWrapValidatorHandler,
    )
    from pydantic_core import CoreSchema

EXPECTED = "expected"
"""The type of the errors that parsing functions raise."""

_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
_A_DURATION = "a duration with its unit, such as 90s, 30m, 12h or 7d"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_SCALARS = ("string", "number", "boolean")  # what text without quotes can be in YAML
_RESERVED_VARIABLE = re.compile(r"TF_CONFIG|CLUSTER_SPEC|(AIP|CLOUD_ML|DISTLAUNCH)_.*")


def expected_error(expected: str, hint: str = "") -> PydanticCustomError:
    """Return the error of a parsing function, without the value, which `validation` adds."""
    return PydanticCustomError(EXPECTED, "{expected}", {"expected": expected, "hint": hint})


@dataclass(frozen=True, eq=False)
class _Parsed:
    """An annotation: how text is parsed, and its JSON schema."""

    parse: Callable[[Any], Any]
    json_schema: Mapping[str, Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.parse, handler(source))

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(self.json_schema)


def or_default(default: Callable[[], Any]) -> BeforeValidator:
    """Return the annotation of a section that may be missing or written without content."""
    return BeforeValidator(lambda value: default() if value is None else value)


def text(expected: str, pattern: str = r"[^\0]*") -> _Parsed:
    """Return the annotation of text that matches a pattern."""
    regex = re.compile(pattern, re.ASCII)

    def parse(value: Any) -> str:
        if not isinstance(value, str) or not regex.fullmatch(value):
            raise expected_error(expected)
        return value

    types = list(_SCALARS) if regex.fullmatch("1234567") else "string"
    return _Parsed(parse, {"type": types, "pattern": f"^({pattern})$", "description": expected})


def one_of(*values: str, suggest: Callable[[str, tuple[str, ...]], str] = did_you_mean) -> _Parsed:
    """Return the annotation of text that is one of several values."""

    def parse(value: Any) -> str:
        if value not in values:
            hint = suggest(str(value), values)
            raise expected_error(f"{', '.join(values[:-1])} or {values[-1]}", hint)
        return str(value)

    return _Parsed(parse, {"enum": list(values)})


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _parse_duration(value: Any) -> int:
    if isinstance(value, int):  # of a job that is overridden
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None:
        raise expected_error(_A_DURATION)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _parse_replicas(value: Any) -> int | None:
    """Return the number of replicas, None for ``auto``."""
    if value in ("auto", None):
        return None
    if not re.fullmatch(r"0*[1-9][0-9]{0,18}", str(value), re.ASCII):
        raise expected_error("auto or a whole number of 1 or more")
    return int(value)


def _parse_variable(value: Any) -> str:
    name = str(value)
    if _RESERVED_VARIABLE.fullmatch(name):
        raise expected_error("another name, as this variable is set for each task")
    if not re.fullmatch(_VARIABLE, name):
        raise expected_error("a variable's name, such as LOG_LEVEL")
    return name


Text = Annotated[str, text("text")]
NonEmptyLine = Annotated[str, text("text in one line", r"[^\0-\x1f\x7f]+")]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
_DURATION_SCHEMA = {
    "type": "string",
    "pattern": f"^(?=.){_DURATION.pattern}$",
    "description": _A_DURATION,
}
Duration = Annotated[int, _Parsed(_parse_duration, _DURATION_SCHEMA)]
JobName = Annotated[
    str, text("at most 63 of a-z, 0-9, _ and -, a letter first, such as digits", JOB_NAME)
]
ModuleName = Annotated[
    str, text("a Python module such as trainer.task", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
]
ScriptPath = Annotated[
    str, text("a Python file of the project such as train.py", r"(?!/|(.*/)?\.\./)[^\n]*[^/\n]\.py")
]
ProjectId = Annotated[
    str,
    text(
        "a project id such as my-project-1234",
        r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]|[0-9]{6,}",
    ),
]
RegionName = Annotated[str, text("a region such as us-central1", r"[a-z]+(-[a-z]+)+[0-9]+")]
Bucket = Annotated[
    str,
    text(
        "a bucket such as gs://my-bucket",
        r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[^\0-\x1f\x7f]*)?",
    ),
    AfterValidator(lambda bucket: bucket.rstrip("/")),
]
ImageName = Annotated[
    str,
    text(
        "an image such as python:3.12-slim",
        r"([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
        r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    ),
]
RelativePath = Annotated[
    str,
    text(
        "a path below the project folder, such as data/labels.txt",
        r"(?!/)(?!(.*/)?\.\.(/|$))[^\0-\x1f\x7f]+",
    ),
]
Repository = Annotated[
    str,
    text(
        "an image without a tag, such as us-central1-docker.pkg.dev/my-project/training/digits",
        r"[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+",
    ),
]
StageName = Annotated[str, text("a stage of the Dockerfile such as train", r"[A-Za-z][\w.-]*")]
ArgumentName = Annotated[str, text("a name of ARG, such as PYTHON_VERSION", _VARIABLE)]
AccountEmail = Annotated[
    str, text("an account such as trainer@my-project.iam.gserviceaccount.com", r"[^\s@]+@[^\s@]+")
]
AcceleratorName = Annotated[
    str, text("an accelerator such as NVIDIA_TESLA_T4", r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
]
MachineTypeName = Annotated[str, text("a machine type such as n1-standard-8", r"[a-z][a-z0-9_-]+")]
LabelName = Annotated[str, text("at most 63 of a-z, 0-9, _ and -, a letter first", JOB_NAME)]
LabelValue = Annotated[str, text("at most 63 of a-z, 0-9, _ and -", r"[a-z0-9_-]{0,63}")]
SharedPath = Annotated[
    str,
    text("an absolute path of all nodes, such as /shared/jobs or ~/jobs", r"[/~][^\0-\x1f\x7f]*"),
]
SlurmName = Annotated[str, text("a name in the cluster, such as gpu", r"[A-Za-z0-9_][\w.,:@+-]*")]
KubernetesName = Annotated[
    str, text("at most 63 of a-z, 0-9 and -, such as team-a", r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
]
# What sbatch takes from distlaunch, so that a job is found again and its tasks have their places.
_SET_OPTIONS = (
    r"(--(job-name|comment|output|error|open-mode|ntasks|gpus-per-task|partition|account|time"
    r"|chdir|array|wrap|parsable|export)(=.*)?|-[JoenpAtDa].*)"
)
SbatchOption = Annotated[
    str,
    text(
        "an option of sbatch that distlaunch does not set itself, such as --exclusive",
        rf"(?!{_SET_OPTIONS}$)-[^\0-\x1f\x7f]+",
    ),
]
_VARIABLE_SCHEMA = {
    "type": "string",
    "pattern": f"^(?!({_RESERVED_VARIABLE.pattern})$)({_VARIABLE})$",
}
VariableName = Annotated[str, _Parsed(_parse_variable, _VARIABLE_SCHEMA)]


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


class ReductionServerSection(Section):
    """``reduction_server``."""

    builds = ReductionServer

    replicas: Annotated[
        int | None,
        _Parsed(_parse_replicas, {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
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


class SchedulingSection(Section):
    """``scheduling``."""

    builds = Scheduling

    strategy: Annotated[str, one_of("STANDARD", "SPOT", "FLEX_START")] = "STANDARD"
    timeout: Duration | None = None
    max_wait: Duration | None = None
    regions: tuple[RegionName, ...] = ()
    on_stockout: Annotated[str, one_of("next-region", "fail")] = "next-region"


def _plain_word(value: Any) -> Any:
    """Return a word of a search as it is here: Vertex AI has MAXIMIZE and UNIT_LOG_SCALE."""
    if not isinstance(value, str):
        return value
    word = re.sub(r"^unit_|_(scale|search)$", "", value.lower())
    return {"discrete": "double", "categorical": None}.get(word, word)  # of AI Platform


_PLAIN_WORD = BeforeValidator(_plain_word)


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
    reduction_server: ReductionServerSection | None = None
    tuning: TuningSection | None = None
    engine: Annotated[str, one_of("vertex", "slurm")] = "vertex"
    slurm: Annotated[SlurmSection | None, or_default(dict)] = None
    kubernetes: Annotated[KubernetesSection | None, or_default(dict)] = None
    vertex: Annotated[dict[str, Any] | None, or_default(dict)] = None
