"""Plain data against Google's protobuf messages, with every problem and its path.

protobuf's JSON parser stops at the first problem. This one walks the message descriptor and
collects all problems; if there are none, protobuf parses the data, too.

google-cloud-aiplatform describes the messages in its ``types`` modules. Importing its package takes
0.72 s of CPU for the clients of all services; the two modules with a job's messages need 0.06 s, so
they are imported alone (google-cloud-aiplatform 2.7, Python 3.11, 2 cores).
"""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from distlaunch.errors import JobFileError, did_you_mean
from distlaunch.job.machine_catalogue import suggest_accelerator
from distlaunch.job.validation import describe_value, dotted_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlaunch.job.yaml_document import Path

MessageName = Literal["CustomJob", "CustomJobSpec", "HyperparameterTuningJob"]

MESSAGES: dict[str, MessageName] = {
    "customJobs": "CustomJob",
    "hyperparameterTuningJobs": "HyperparameterTuningJob",
}
"""The message of each collection."""

_PACKAGE = "google.cloud.aiplatform_v1"
_MODULES = ("custom_job", "hyperparameter_tuning_job")
_importing = threading.Lock()

_WRAPPERS = re.compile(
    r"google\.protobuf\.(Bool|Bytes|Double|Float|U?Int(32|64)|String)Value", re.ASCII
)
_MOST_VALUES = 20_000  # of a job; YAML aliases can multiply them
_MOST_HINTS = 100  # each compares with all known names
_MOST_NAMES = 6  # of an enum that are listed beside a hint
_LONGEST_INTEGER = 4_000  # digits, fewer than Python refuses to convert
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SPECIAL_NUMBERS = {"nan": "NaN", "inf": "Infinity", "infinity": "Infinity"}
_EXPECTED = {
    "google.protobuf.Duration": "a duration in seconds, such as 3600s",
    "google.protobuf.Timestamp": "a time such as 2026-11-21T12:00:00Z",
}


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A problem of a field, at its path in the data; `of_key` if the name itself is wrong."""

    path: Path
    message: str
    of_key: bool = False

    def __str__(self) -> str:
        return f"{dotted_path(self.path)}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """Data as a message: `json` has Google's JSON names, numbers as numbers and enums by name.

    Empty and missing fields stay so. `origins` has the path in the data of each path in `json`.
    """

    json: dict[str, Any]
    problems: tuple[FieldProblem, ...]
    origins: Mapping[Path, Path]


def validate_request(collection: str, request: Mapping[str, Any]) -> None:
    """Validate the body of a call that creates a job against Google's message.

    Parameters
    ----------
    collection
        ``customJobs`` or ``hyperparameterTuningJobs``.

    Raises
    ------
    JobFileError
        With every problem:
        ``jobSpec.workerPoolSpecs[0].machineSpec.foo: unknown field; did you mean …``.
    """
    problems = parse(MESSAGES[collection], request).problems
    if problems:
        raise JobFileError(map(str, problems))


def parse(name: MessageName, data: Mapping[str, Any], *, as_text: bool = False) -> ParsedMessage:
    """Parse plain data, in camelCase or snake_case, as one of Google's messages.

    With `as_text`, the data is from a `yaml_document`: numbers and booleans are text, and a single
    value is allowed in place of a list, as in gcloud's ``--config`` files.
    """
    message = _message_classes()[name]()
    reader = _MessageReader(as_text=as_text)
    json = reader.read(message.DESCRIPTOR, data, (), ())
    if reader.is_too_large:
        reader.problems = [FieldProblem((), "too large to be a job")]
    if not reader.problems:
        reader.parse_with_protobuf(message, json)
    return ParsedMessage(json, tuple(reader.problems), reader.origins)


def _message_classes() -> dict[MessageName, Any]:
    with _importing:
        custom, tuning = _import_types()
    wrapped = [custom.CustomJob, custom.CustomJobSpec, tuning.HyperparameterTuningJob]
    return {each.__name__: type(each.pb(each())) for each in wrapped}


def _import_types() -> tuple[Any, Any]:
    """Import the modules with a job's messages, without the package around them.

    During the import, empty modules replace the package; it can be imported normally afterwards,
    and has the same classes then.
    """
    names = [f"{_PACKAGE}.types.{name}" for name in _MODULES]
    if any(name not in sys.modules for name in names) and _PACKAGE not in sys.modules:
        placeholders = _empty_packages()
        sys.modules.update(placeholders)
        try:
            for name in names:
                import_module(name)
        finally:
            for name in placeholders:
                del sys.modules[name]
    custom, tuning = (sys.modules.get(name) or import_module(name) for name in names)
    return custom, tuning


def _empty_packages() -> dict[str, ModuleType]:
    spec = find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    package, types = ModuleType(_PACKAGE), ModuleType(f"{_PACKAGE}.types")
    package.__path__ = folders
    types.__path__ = [f"{folder}/types" for folder in folders]
    return {module.__name__: module for module in (package, types)}


class _InvalidValue(Exception):
    """What was expected in place of a value."""


@dataclass
class _MessageReader:
    """Walks a message descriptor; `source` is a path in the data, `path` the one in the result."""

    as_text: bool
    problems: list[FieldProblem] = field(default_factory=list)
    origins: dict[Path, Path] = field(default_factory=dict)

    @property
    def is_too_large(self) -> bool:
        return len(self.origins) > _MOST_VALUES

    def read(self, descriptor: Any, data: Any, source: Path, path: Path) -> dict[str, Any]:
        """Return a message's data in JSON names."""
        if not hasattr(data, "items"):
            self._add_expected("a section", data, source)
            return {}
        by_name = {each.name: each for each in descriptor.fields}
        by_json = {each.json_name: each for each in descriptor.fields}
        result: dict[str, Any] = {}
        keys: dict[str, str] = {}
        for key, value in () if self.is_too_large else data.items():
            known = by_json.get(key) or by_name.get(key)
            if known is None:
                self._add_unknown(key, by_name if "_" in str(key) else by_json, source)
                continue
            if value is None:
                continue
            group = _exclusive_group(known)
            if group in keys:
                self._add((*source, key), f"conflicts with {keys[group]}; expected one", True)
            keys[group] = key
            target = (*path, known.json_name)
            self.origins[target] = (*source, key)
            result[known.json_name] = self._field(known, value, (*source, key), target)
        return result

    def parse_with_protobuf(self, message: Any, json: dict[str, Any]) -> None:
        """Add the problem that protobuf's own parser finds, if any."""
        from google.protobuf import json_format

        try:
            json_format.ParseDict(json, message)
        except json_format.ParseError as error:
            self._add((), " ".join(str(error).split()))

    def _field(self, kind: Any, value: Any, source: Path, path: Path) -> Any:
        inner = kind.message_type
        if inner is not None and inner.GetOptions().map_entry:
            return self._map(inner.fields_by_name["value"], value, source, path)
        if not _is_repeated(kind):
            return self._single(kind, value, source, path)
        items = value if isinstance(value, list | tuple) else [value]
        if items is not value and not self.as_text:
            return self._add_expected("a list", value, source)
        result = []
        for index, item in enumerate(items):
            item_source = (*source, index) if items is value else source
            target = (*path, index)
            self.origins[target] = item_source
            result.append(self._single(kind, item, item_source, target))
        return result

    def _map(self, kind: Any, value: Any, source: Path, path: Path) -> Any:
        if not hasattr(value, "items"):
            return self._add_expected("names with values, one a line", value, source)
        result = {}
        for key, item in value.items():
            target = (*path, key)
            self.origins[target] = (*source, key)
            result[key] = self._single(kind, item, (*source, key), target)
        return result

    def _single(self, kind: Any, value: Any, source: Path, path: Path) -> Any:
        inner = kind.message_type
        try:
            if inner is None:
                return self._scalar(kind, value)
            if _WRAPPERS.fullmatch(inner.full_name):
                return self._scalar(inner.fields_by_name["value"], value)
            if inner.full_name.startswith("google.protobuf."):
                return _well_known(inner, value)
        except _InvalidValue as error:
            return self._add_expected(str(error), value, source)
        return self.read(inner, value, source, path)

    def _scalar(self, kind: Any, value: Any) -> Any:
        if kind.cpp_type == kind.CPPTYPE_ENUM:
            return _enum(kind.enum_type, value)
        return _PARSERS[_scalar_type(kind)](value, self.as_text)

    def _add_unknown(self, key: str, known: Mapping[str, Any], source: Path) -> None:
        hint = did_you_mean(str(key), known) if len(self.problems) < _MOST_HINTS else ""
        hint = hint or f"; known here: {', '.join(known)}"
        self._add((*source, key), f"unknown field{hint}", of_key=True)

    def _add_expected(self, expected: str, value: Any, source: Path) -> None:
        kind, semicolon, hint = expected.partition(";")
        self._add(source, f"expected {kind}, got {describe_value(value)}{semicolon}{hint}")

    def _add(self, source: Path, message: str, of_key: bool = False) -> None:
        self.problems.append(FieldProblem(source, message, of_key))


def _is_repeated(kind: Any) -> bool:
    label = getattr(kind, "label", None)  # of protobuf before 6.31
    return bool(kind.is_repeated if hasattr(kind, "is_repeated") else label == kind.LABEL_REPEATED)


def _exclusive_group(kind: Any) -> str:
    """Return the name that a field shares with those of which only one may be set."""
    oneof = kind.containing_oneof
    return f"one of {oneof.name}" if oneof is not None else str(kind.name)


def _scalar_type(kind: Any) -> str:
    return next(name for name in _PARSERS if kind.cpp_type == getattr(kind, f"CPPTYPE_{name}"))


def _enum(kind: Any, value: Any) -> str:
    by_name = kind.values_by_name
    if isinstance(value, str) and value in by_name:
        return value
    number = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value
    if isinstance(number, int) and not isinstance(number, bool) and number in kind.values_by_number:
        return str(kind.values_by_number[number].name)
    names = [name for name in by_name if not name.endswith("_UNSPECIFIED")]
    suggest = suggest_accelerator if kind.name == "AcceleratorType" else did_you_mean
    hint = suggest(str(value), names)
    if hint and len(names) > _MOST_NAMES:
        raise _InvalidValue(f"one of {len(names)} names{hint}")
    *first, last = names
    raise _InvalidValue(f"{', '.join(first)} or {last}{hint}" if first else f"{last}{hint}")


def _parse_text(value: Any, _as_text: bool) -> str:
    if not isinstance(value, str):
        raise _InvalidValue("text")
    if "\0" in value or not _is_unicode(value):
        raise _InvalidValue("text without NUL or broken characters")
    return value


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parse_boolean(value: Any, as_text: bool) -> bool:
    if isinstance(value, bool):
        return value
    if as_text and isinstance(value, str) and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    raise _InvalidValue("true or false")


def _integer_parser(minimum: int, maximum: int) -> Callable[[Any, bool], int]:
    def parse_integer(value: Any, _as_text: bool) -> int:
        number = _number(value)
        if number is None or number != number // 1:
            raise _InvalidValue("a whole number")
        if not minimum <= number <= maximum:
            raise _InvalidValue(f"a whole number of at most {maximum.bit_length()} bits")
        return int(number)

    return parse_integer


def _number(value: Any) -> int | float | None:
    """Return a finite number, also of text; None for anything else."""
    if isinstance(value, str):
        if _WHOLE.fullmatch(value):
            return int(value) if len(value) <= _LONGEST_INTEGER else None
        value = float(value) if _DECIMAL.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if value - value == 0 else None


def _parse_float(value: Any, _as_text: bool) -> float | str:
    number = _number(value)
    if number is not None:
        try:
            return float(number)
        except OverflowError:
            raise _InvalidValue("a number") from None
    text = str(value).lower()  # an infinity is -Infinity to protobuf and -.inf in YAML
    sign = "-" if text.startswith("-") else ""
    name = text.removeprefix(sign or "+").removeprefix(".")
    if isinstance(value, bool) or name not in _SPECIAL_NUMBERS:
        raise _InvalidValue("a number")
    return f"{sign}{_SPECIAL_NUMBERS[name]}" if name != "nan" else "NaN"


_PARSERS: dict[str, Callable[[Any, bool], Any]] = {
    "BOOL": _parse_boolean,
    "DOUBLE": _parse_float,
    "FLOAT": _parse_float,
    "INT32": _integer_parser(-(2**31), 2**31 - 1),
    "INT64": _integer_parser(-(2**63), 2**63 - 1),
    "UINT32": _integer_parser(0, 2**32 - 1),
    "UINT64": _integer_parser(0, 2**64 - 1),
    "STRING": _parse_text,
}


def _well_known(kind: Any, value: Any) -> Any:
    """Parse a duration, a time or another type with a JSON form of its own."""
    from google.protobuf import json_format
    from google.protobuf.message_factory import GetMessageClass

    message = GetMessageClass(kind)()
    try:
        json_format.ParseDict(value, message)
        return json_format.MessageToDict(message)
    except (json_format.ParseError, ValueError, TypeError, AttributeError):
        raise _InvalidValue(_EXPECTED.get(kind.full_name, f"a {kind.name}")) from None
