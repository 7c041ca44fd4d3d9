"""The schema of distlaunch.yaml: its sections, and which values each key takes.

Every value arrives as the text of the file (see `yaml_document`), so each type here begins with a
function that parses text, and raises an error with what it expected.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError, core_schema

from distlaunch.errors import did_you_mean
from distlaunch.job.model import Scale, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

EXPECTED = "expected"
"""The type of the errors that parsing functions raise."""

_LONGEST_COUNT = 9  # digits of each part of a duration
_Number = TypeVar("_Number", int, float)
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_A_DURATION = "a duration with its unit, such as 90s, 30m, 12h or 7d"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_SCALARS = ("string", "number", "boolean")  # what text without quotes can be in YAML
_RESERVED_VARIABLE = re.compile(r"TF_CONFIG|CLUSTER_SPEC|(AIP|CLOUD_ML|DISTLAUNCH)_.*")


def expected_error(expected: str, hint: str = "") -> PydanticCustomError:
    """Return the error of a parsing function, without the value, which `validation` adds."""
    return PydanticCustomError(EXPECTED, "{expected}", {"expected": expected, "hint": hint})


@dataclass(frozen=True, eq=False)
class _Parsed:
    """An annotation: how text is parsed, and its JSON schema ({} for that of the value)."""

    parse: Callable[[Any], Any]
    json_schema: Mapping[str, Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.parse, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(self.json_schema) or handler(schema)


@dataclass(frozen=True, eq=False)
class _EmptyAsDefault(_Parsed):
    """Takes a section without content as its default."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "null"}]}


def or_default(default: Callable[[], Any]) -> _EmptyAsDefault:
    """Return the annotation of a section that may be written without content."""
    return _EmptyAsDefault(lambda value: default() if value is None else value, {})


def text(expected: str, pattern: str = r"[^\0]*") -> _Parsed:
    """Return the annotation of text that matches a pattern."""
    regex = re.compile(pattern, re.ASCII)

    def parse(value: Any) -> str:
        if not isinstance(value, str) or not regex.fullmatch(value):
            raise expected_error(expected)
        return value

    types = list(_SCALARS) if regex.fullmatch("1234567") else "string"
    return _Parsed(parse, {"type": types, "pattern": f"^({pattern})$", "description": expected})


def _number(expected: str, kind: Callable[[Any], _Number], minimum: float) -> _Parsed:
    def parse(value: Any) -> _Number:
        try:
            number = kind(value)
        except (TypeError, ValueError):
            raise expected_error(expected) from None
        if not minimum <= number < math.inf:
            raise expected_error(expected)
        return number

    json_schema: dict[str, Any] = {"type": "integer" if kind is int else "number"}
    if math.isfinite(minimum):
        json_schema["minimum"] = minimum
    return _Parsed(parse, json_schema)


def _integer(minimum: int) -> _Parsed:
    return _number(f"a whole number of {minimum} or more", int, minimum)


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
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None:
        raise expected_error(_A_DURATION)
    if any(part and len(part) > _LONGEST_COUNT for part in match.groups()):
        raise expected_error("a shorter duration, such as 90s, 30m, 12h or 7d")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _parse_replicas(value: Any) -> int | None:
    """Return the number of replicas, None for ``auto``."""
    if value == "auto":
        return None
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise expected_error("auto or a whole number of 1 or more")
    return number


def _parse_variable(value: Any) -> str:
    name = str(value)
    if _RESERVED_VARIABLE.fullmatch(name):
        raise expected_error("another name, as this variable is set for each task")
    if not re.fullmatch(_VARIABLE, name):
        raise expected_error("a variable's name, such as LOG_LEVEL")
    return name


Text = Annotated[str, text("text")]
NonEmptyLine = Annotated[str, text("text in one line", r"[^\0-\x1f\x7f]+")]
NonNegativeInt = Annotated[int, _integer(0)]
PositiveInt = Annotated[int, _integer(1)]
Number = Annotated[float, _number("a number", float, -math.inf)]
_DURATION_SCHEMA = {
    "type": "string",
    "pattern": f"^(?=.){_DURATION.pattern}$",
    "description": _A_DURATION,
}
Duration = Annotated[int, _Parsed(_parse_duration, _DURATION_SCHEMA)]
JobName = Annotated[
    str,
    text(
        "at most 63 of a-z, 0-9, _ and -, a letter first, such as digits",
        r"[a-z][a-z0-9_-]{0,62}",
    ),
]
ModuleName = Annotated[
    str, text("a Python module such as trainer.task", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
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
AccountEmail = Annotated[
    str, text("an account such as trainer@my-project.iam.gserviceaccount.com", r"[^\s@]+@[^\s@]+")
]
AcceleratorName = Annotated[
    str, text("an accelerator such as NVIDIA_TESLA_T4", r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
]
MachineTypeName = Annotated[str, text("a machine type such as n1-standard-8", r"[a-z][a-z0-9_-]+")]
LabelName = Annotated[
    str, text("at most 63 of a-z, 0-9, _ and -, a letter first", r"[a-z][a-z0-9_-]{0,62}")
]
LabelValue = Annotated[str, text("at most 63 of a-z, 0-9, _ and -", r"[a-z0-9_-]{0,63}")]
_VARIABLE_SCHEMA = {
    "type": "string",
    "pattern": f"^(?!({_RESERVED_VARIABLE.pattern})$)({_VARIABLE})$",
}
VariableName = Annotated[str, _Parsed(_parse_variable, _VARIABLE_SCHEMA)]


class Section(BaseModel):
    """A section of the file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AcceleratorSection(Section):
    """``accelerator``."""

    type: AcceleratorName
    count: PositiveInt = 1


class ChiefSection(Section):
    """``cluster.chief``: one machine."""

    machine: MachineTypeName
    accelerator: AcceleratorSection | None = None


class PoolSection(ChiefSection):
    """The other pools of ``cluster``."""

    count: NonNegativeInt = 1


class ClusterSection(Section):
    """``cluster``."""

    chief: ChiefSection
    workers: PoolSection | None = None
    parameter_servers: PoolSection | None = None
    evaluators: PoolSection | None = None


class ImageSection(Section):
    """``image``."""

    repository: Repository | None = None
    base: ImageName | None = None
    requirements: RelativePath | None = None
    include: Annotated[list[RelativePath], or_default(list)] = []
    allow_secrets: Annotated[list[RelativePath], or_default(list)] = []
    dockerfile: RelativePath | None = None
    uri: ImageName | None = None


class ReductionServerSection(Section):
    """``reduction_server``."""

    replicas: Annotated[
        int | None,
        _Parsed(_parse_replicas, {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
    ] = None


class SchedulingSection(Section):
    """``scheduling``."""

    strategy: Annotated[Strategy, one_of("STANDARD", "SPOT", "FLEX_START")] = "STANDARD"
    timeout: Duration | None = None
    max_wait: Duration | None = None


class ParameterSection(Section):
    """One of ``tuning.parameters``: a range of numbers or a list of values.

    Values of the type double are numbers to the search, which then orders them.
    """

    type: Annotated[Literal["integer", "double"], one_of("integer", "double")] | None = None
    min: Number | None = None
    max: Number | None = None
    scale: Annotated[Scale, one_of("linear", "log", "reverse_log")] = "linear"
    values: Annotated[list[NonEmptyLine], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> ParameterSection:
        of_range = [self.type, self.min, self.max]
        is_choice = self.values is not None and of_range in ([None] * 3, ["double", None, None])
        is_range = self.values is None and None not in of_range
        if not (is_choice or is_range):
            raise expected_error("either type, min and max or a list of values")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise expected_error("a min that is not above max")
        if self.type == "integer" and any(end and end % 1 for end in (self.min, self.max)):
            raise expected_error("integers as min and max of the type integer")
        if self.type == "double" and not all(map(_is_number, self.values or [])):
            raise expected_error("numbers as values, such as [0.1, 0.01], for the type double")
        if is_choice and self.type is None and self.scale != "linear":
            raise expected_error("the type double with a scale, or no scale")
        return self


class TuningSection(Section):
    """``tuning``."""

    metric: NonEmptyLine
    goal: Annotated[Literal["maximize", "minimize"], one_of("maximize", "minimize")]
    parameters: Annotated[dict[NonEmptyLine, ParameterSection], Field(min_length=1)]
    trials: PositiveInt
    parallel_trials: PositiveInt = 1
    algorithm: Annotated[
        Literal["bayesian", "grid", "random"], one_of("bayesian", "grid", "random")
    ] = "bayesian"


class JobSection(Section):
    """The whole file."""

    name: JobName
    project: ProjectId | None = None
    region: RegionName | None = None
    bucket: Bucket | None = None
    module: ModuleName = "trainer.task"
    args: Annotated[list[Text], or_default(list)] = []
    image: Annotated[ImageSection, or_default(dict)] = ImageSection()
    cluster: ClusterSection
    scheduling: Annotated[SchedulingSection, or_default(dict)] = SchedulingSection()
    env: Annotated[dict[VariableName, Text], or_default(dict)] = {}
    labels: Annotated[dict[LabelName, LabelValue], or_default(dict)] = {}
    service_account: AccountEmail | None = None
    network: NonEmptyLine | None = None
    tensorboard: NonEmptyLine | None = None
    reduction_server: ReductionServerSection | None = None
    tuning: TuningSection | None = None
    vertex: Annotated[dict[str, Any], or_default(dict)] = {}
