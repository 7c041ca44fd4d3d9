"""The types of values in distlaunch.yaml and other files.

Every value arrives as the text of the file (see `yaml_document`), so each type here begins with a
function that parses text, and raises an error with what it expected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError, core_schema

from distlaunch.errors import did_you_mean
from distlaunch.job import reservation
from distlaunch.job.model import PERSISTENT_RESOURCE_ID
from distlaunch.job.names import JOB_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

EXPECTED = "expected"
"""The type of the errors that parsing functions raise."""

_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
_A_DURATION = "a duration with its unit, such as 90s, 30m, 12h or 7d"
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)( ?%)?", re.ASCII)
_A_SHARE = "a share such as 10% or 0.1, above 0 and at most 100%"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_SCALARS = ("string", "number", "boolean")  # what text without quotes can be in YAML
_RESERVED_VARIABLE = re.compile(r"TF_CONFIG|CLUSTER_SPEC|(AIP|CLOUD_ML|DISTLAUNCH)_.*")


def expected_error(expected: str, hint: str = "") -> PydanticCustomError:
    """Return the error of a parsing function, without the value, which `validation` adds."""
    return PydanticCustomError(EXPECTED, "{expected}", {"expected": expected, "hint": hint})


@dataclass(frozen=True, eq=False)
class Parsed:
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


def text(
    expected: str, pattern: str = r"[^\0]*", hint: Callable[[str], str] = lambda _: ""
) -> Parsed:
    """Return the annotation of text that matches a pattern; `hint` is given text that does not."""
    regex = re.compile(pattern, re.ASCII)

    def parse(value: Any) -> str:
        if not isinstance(value, str) or not regex.fullmatch(value):
            raise expected_error(expected, hint(str(value)))
        return value

    types = list(_SCALARS) if regex.fullmatch("1234567") else "string"
    return Parsed(parse, {"type": types, "pattern": f"^({pattern})$", "description": expected})


def one_of(*values: str, suggest: Callable[[str, tuple[str, ...]], str] = did_you_mean) -> Parsed:
    """Return the annotation of text that is one of several values."""

    def parse(value: Any) -> str:
        if value not in values:
            hint = suggest(str(value), values)
            raise expected_error(f"{', '.join(values[:-1])} or {values[-1]}", hint)
        return str(value)

    return Parsed(parse, {"enum": list(values)})


def _parse_duration(value: Any) -> int:
    if isinstance(value, int):  # of a job that is overridden
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None:
        raise expected_error(_A_DURATION)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _parse_share(value: Any) -> float:
    if isinstance(value, float):  # of a job that is overridden
        return value
    match = _SHARE.fullmatch(str(value))
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= 1:
        raise expected_error(_A_SHARE)
    return share


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
PositiveNumber = Annotated[float, Field(allow_inf_nan=False, gt=0)]
_DURATION_SCHEMA = {
    "type": "string",
    "pattern": f"^(?=.){_DURATION.pattern}$",
    "description": _A_DURATION,
}
Duration = Annotated[int, Parsed(_parse_duration, _DURATION_SCHEMA)]
_SHARE_SCHEMA = {
    "type": ["string", "number"],
    "pattern": f"^{_SHARE.pattern}$",
    "description": _A_SHARE,
}
Share = Annotated[float, Parsed(_parse_share, _SHARE_SCHEMA)]
JobName = Annotated[
    str, text("at most 63 of a-z, 0-9, _ and -, a letter first, such as digits", JOB_NAME)
]
_MODULE = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
ModuleName = Annotated[str, text("a Python module such as trainer.task", _MODULE)]
ScriptPath = Annotated[
    str,
    text(
        "a Python file of the project such as train.py",
        r"(?!/|(.*/)?\.\./)[^\n]*[^/\n]\.py",
        lambda value: (
            f"; write script_module: {value}" if re.fullmatch(_MODULE, value, re.ASCII) else ""
        ),
    ),
]
ProjectId = Annotated[
    str,
    text(
        "a project id such as my-project-1234",
        r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]|[0-9]{6,}",
    ),
]
Reservation = Annotated[
    str,
    text(
        "any, NAME, ZONE/NAME or projects/P/zones/ZONE/reservations/NAME, as 'gcloud compute "
        "reservations list' has them",
        rf"{reservation.PLAIN_NAME}|{reservation.SHORT_NAME}|{reservation.FULL_NAME}",
    ),
]
PersistentResourceId = Annotated[
    str,
    text("at most 63 of a-z, 0-9 and -, a letter first, such as warm", PERSISTENT_RESOURCE_ID),
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
VariableName = Annotated[str, Parsed(_parse_variable, _VARIABLE_SCHEMA)]
