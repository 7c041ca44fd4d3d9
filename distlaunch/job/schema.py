"""The sections of distlaunch.yaml: what each may hold and what is expected in it.

Every value arrives as the text that was written (see `yaml_marks`), so each type here begins with
a function from text to a value, which says what it expected where there is none.
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

_LONGEST_COUNT = 9  # digits of a duration's
EXPECTED = "expected"  # the type of the errors that are raised here

_Number = TypeVar("_Number", int, float)
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_A_DURATION = "a duration with its unit, as 90s, 30m, 12h or 7d"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_SCALARS = ("string", "number", "boolean")  # what YAML takes text without quotes for
_SET_FOR_EVERY_TASK = re.compile(r"TF_CONFIG|CLUSTER_SPEC|(AIP|CLOUD_ML|DISTLAUNCH)_.*")


def _refusal(expected: str, hint: str = "") -> PydanticCustomError:
    return PydanticCustomError(EXPECTED, "{expected}", {"expected": expected, "hint": hint})


@dataclass(frozen=True, eq=False)
class _Read:
    """How a value is read from the text that was written, and what an editor may know of that.

    Parameters
    ----------
    function
        From what was written to the value.
    known
        The JSON schema of what can be written, {} for that of the value.
    """

    function: Callable[[Any], Any]
    known: Mapping[str, Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.function, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(self.known) or handler(schema)


def _text(expected: str, pattern: str = r"[^\0]*") -> _Read:
    whole = re.compile(pattern, re.ASCII)

    def read(value: Any) -> str:
        if not isinstance(value, str) or not whole.fullmatch(value):
            raise _refusal(expected)
        return value

    types = list(_SCALARS) if whole.fullmatch("1234567") else "string"
    known = {"type": types, "pattern": f"^({pattern})$", "description": expected}
    return _Read(read, known)


def _number(expected: str, kind: Callable[[Any], _Number], minimum: float) -> _Read:
    def read(value: Any) -> _Number:
        try:
            number = kind(value)
        except (TypeError, ValueError):
            raise _refusal(expected) from None
        if not minimum <= number < math.inf:
            raise _refusal(expected)
        return number

    known: dict[str, Any] = {"type": "integer" if kind is int else "number"}
    if math.isfinite(minimum):
        known["minimum"] = minimum
    return _Read(read, known)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _whole(minimum: int) -> _Read:
    return _number(f"a whole number of {minimum} or more", int, minimum)


def _one_of(*values: str) -> _Read:
    def read(value: Any) -> str:
        if value not in values:
            hint = did_you_mean(str(value), list(values))
            raise _refusal(f"{', '.join(values[:-1])} or {values[-1]}", hint)
        return str(value)

    return _Read(read, {"enum": list(values)})


def _seconds(value: Any) -> int:
    found = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if found is None:
        raise _refusal(_A_DURATION)
    if any(part and len(part) > _LONGEST_COUNT for part in found.groups()):
        raise _refusal("a shorter duration, as 90s, 30m, 12h or 7d")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _replicas(value: Any) -> int | None:
    """Return a number of replicas, None for ``auto``."""
    if value == "auto":
        return None
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise _refusal("auto or a whole number of 1 or more")
    return number


def _variable(value: Any) -> str:
    name = str(value)
    if _SET_FOR_EVERY_TASK.fullmatch(name):
        raise _refusal("a name of your own, as this variable is set for each task")
    if not re.fullmatch(_VARIABLE, name):
        raise _refusal("a variable's name, as LOG_LEVEL")
    return name


@dataclass(frozen=True, eq=False)
class _NoneIs(_Read):
    """Takes a section without content for an empty one."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "null"}]}


def _none_is(empty: Callable[[], Any]) -> _NoneIs:
    return _NoneIs(lambda value: empty() if value is None else value, {})


Text = Annotated[str, _text("text")]
Filled = Annotated[str, _text("text in one line", r"[^\0-\x1f\x7f]+")]
AtLeastNone = Annotated[int, _whole(0)]
AtLeastOne = Annotated[int, _whole(1)]
Number = Annotated[float, _number("a number", float, -math.inf)]
Duration = Annotated[
    int,
    _Read(
        _seconds,
        {"type": "string", "pattern": f"^(?=.){_DURATION.pattern}$", "description": _A_DURATION},
    ),
]
JobName = Annotated[
    str,
    _text(
        "at most 63 of a-z, 0-9, _ and -, a letter first, as digits",
        r"[a-z][a-z0-9_-]{0,62}",
    ),
]
ModuleName = Annotated[
    str,
    _text("a Python module, as trainer.task", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"),
]
ProjectId = Annotated[
    str,
    _text(
        "a project's id, as my-project-1234",
        r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]|[0-9]{6,}",
    ),
]
Region = Annotated[str, _text("a region, as us-central1", r"[a-z]+(-[a-z]+)+[0-9]+")]
Bucket = Annotated[
    str,
    _text(
        "a bucket, as gs://my-bucket", r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[^\0-\x1f\x7f]*)?"
    ),
]
ImageName = Annotated[
    str,
    _text(
        "an image, as python:3.12-slim",
        r"([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
        r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    ),
]
InnerPath = Annotated[
    str,
    _text(
        "a path in the project's folder, as data/labels.txt",
        r"(?!/)(?!(.*/)?\.\.(/|$))[^\0-\x1f\x7f]+",
    ),
]
Repository = Annotated[
    str,
    _text(
        "an image's name without a tag, as us-central1-docker.pkg.dev/my-project/training/digits",
        r"[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+",
    ),
]
AccountEmail = Annotated[
    str, _text("an account, as trainer@my-project.iam.gserviceaccount.com", r"[^\s@]+@[^\s@]+")
]
AcceleratorType = Annotated[
    str, _text("an accelerator, as NVIDIA_TESLA_T4", r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
]
MachineType = Annotated[str, _text("a machine type, as n1-standard-8", r"[a-z][a-z0-9_-]+")]
LabelName = Annotated[
    str, _text("at most 63 of a-z, 0-9, _ and -, a letter first", r"[a-z][a-z0-9_-]{0,62}")
]
LabelValue = Annotated[str, _text("at most 63 of a-z, 0-9, _ and -", r"[a-z0-9_-]{0,63}")]
VariableName = Annotated[
    str,
    _Read(
        _variable,
        {"type": "string", "pattern": f"^(?!({_SET_FOR_EVERY_TASK.pattern})$)({_VARIABLE})$"},
    ),
]


class Section(BaseModel):
    """A part of the file that knows all its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AcceleratorSection(Section):
    """``accelerator``."""

    type: AcceleratorType
    count: AtLeastOne = 1


class ChiefSection(Section):
    """``cluster.chief``: one machine."""

    machine: MachineType
    accelerator: AcceleratorSection | None = None


class PoolSection(ChiefSection):
    """``cluster.workers`` and its like: some machines."""

    count: AtLeastNone = 1


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
    requirements: InnerPath | None = None
    include: Annotated[list[InnerPath], _none_is(list)] = []
    allow_secrets: Annotated[list[InnerPath], _none_is(list)] = []
    dockerfile: InnerPath | None = None
    uri: ImageName | None = None


class ReductionServerSection(Section):
    """``reduction_server``."""

    replicas: Annotated[
        int | None,
        _Read(_replicas, {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
    ] = None


class SchedulingSection(Section):
    """``scheduling``."""

    strategy: Annotated[Strategy, _one_of("STANDARD", "SPOT", "FLEX_START")] = "STANDARD"
    timeout: Duration | None = None
    max_wait: Duration | None = None


class ParameterSection(Section):
    """One of ``tuning.parameters``: a span of numbers or a choice of values.

    Values of the type double are numbers to the search, which then knows which of them are near
    each other; others are names.
    """

    type: Annotated[Literal["integer", "double"], _one_of("integer", "double")] | None = None
    min: Number | None = None
    max: Number | None = None
    scale: Annotated[Scale, _one_of("linear", "log", "reverse_log")] = "linear"
    values: Annotated[list[Filled], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _is_span_or_choice(self) -> ParameterSection:
        span = [self.type, self.min, self.max]
        is_choice = self.values is not None and span in ([None] * 3, ["double", None, None])
        is_span = self.values is None and None not in span
        if not (is_choice or is_span):
            raise _refusal("either type, min and max or a list of values")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise _refusal("a min that is at most the max")
        if self.type == "integer" and any(end and end % 1 for end in (self.min, self.max)):
            raise _refusal("a min and a max that are whole, for the type integer")
        if self.type == "double" and not all(map(_is_number, self.values or [])):
            raise _refusal("values that are numbers, as [0.1, 0.01], for the type double")
        if is_choice and self.type is None and self.scale != "linear":
            raise _refusal("the type double with a scale, or no scale")
        return self


class TuningSection(Section):
    """``tuning``."""

    metric: Filled
    goal: Annotated[Literal["maximize", "minimize"], _one_of("maximize", "minimize")]
    parameters: Annotated[dict[Filled, ParameterSection], Field(min_length=1)]
    trials: AtLeastOne
    parallel_trials: AtLeastOne = 1
    algorithm: Annotated[
        Literal["bayesian", "grid", "random"], _one_of("bayesian", "grid", "random")
    ] = "bayesian"


class JobSection(Section):
    """The whole file."""

    name: JobName
    project: ProjectId | None = None
    region: Region | None = None
    bucket: Bucket | None = None
    module: ModuleName = "trainer.task"
    args: Annotated[list[Text], _none_is(list)] = []
    image: Annotated[ImageSection, _none_is(dict)] = ImageSection()
    cluster: ClusterSection
    scheduling: Annotated[SchedulingSection, _none_is(dict)] = SchedulingSection()
    env: Annotated[dict[VariableName, Text], _none_is(dict)] = {}
    labels: Annotated[dict[LabelName, LabelValue], _none_is(dict)] = {}
    service_account: AccountEmail | None = None
    network: Filled | None = None
    tensorboard: Filled | None = None
    reduction_server: ReductionServerSection | None = None
    tuning: TuningSection | None = None
    vertex: Annotated[dict[str, Any], _none_is(dict)] = {}
