"""Plain data against Google's protobuf messages, with every problem and its path.

protobuf's JSON parser stops at the first problem. This one walks the message descriptor, has
protobuf parse each value, and collects all problems.

google-cloud-aiplatform describes the messages in its ``types`` modules. Importing its package takes
0.72 s of CPU for the clients of all services; the two modules with a job's messages need 0.06 s, so
they are imported alone (google-cloud-aiplatform 2.7, Python 3.11, 2 cores).
"""

from __future__ import annotations

import math
import sys
import threading
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message_factory import GetMessageClass

from distlaunch.errors import Diagnostic, JobFileError, did_you_mean
from distlaunch.job.machine_catalogue import suggest_accelerator
from distlaunch.job.validation import describe_value, dotted_path
from distlaunch.text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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

_MOST_VALUES = 20_000  # of a job; YAML aliases can multiply them
_MOST_HINTS = 100  # each compares with all known names
_MOST_NAMES = 6  # of an enum that are listed beside a hint
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_EXPECTED = {
    "google.protobuf.BoolValue": "true or false",
    "google.protobuf.Duration": "a duration in seconds, such as 3600s",
    "google.protobuf.Timestamp": "a time such as 2026-11-21T12:00:00Z",
    Field.CPPTYPE_BOOL: "true or false",
    Field.CPPTYPE_DOUBLE: "a number",
    Field.CPPTYPE_FLOAT: "a number",
    Field.CPPTYPE_INT32: "a whole number of 32 bits",
    Field.CPPTYPE_INT64: "a whole number of 64 bits",
    Field.CPPTYPE_STRING: "text without NUL or broken characters",
}  # by the name of a well-known message or the type of a scalar
_PARSE_ERRORS = (  # of protobuf's parser
    *(json_format.ParseError, ValueError, TypeError, LookupError, OverflowError, AttributeError),
)


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A problem of a field, at its path in the data; `of_key` if the name itself is wrong."""

    path: Path
    message: str
    of_key: bool = False


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """Data as a message: `json` has Google's JSON names, numbers as numbers and enums by name.

    Empty and missing fields stay so. `origins` has the path in the data of each path in `json`.
    """

    json: dict[str, Any]
    problems: tuple[FieldProblem, ...]
    origins: Mapping[Path, Path]


def validate_request(collection: str, request: Mapping[str, Any]) -> None:
    """Raise a JobFileError with every problem of the body of a call that creates a job."""
    problems = parse(MESSAGES[collection], request).problems
    if problems:
        raise JobFileError(
            problems=[Diagnostic(each.message, where=dotted_path(each.path)) for each in problems]
        )


def parse(name: MessageName, data: Mapping[str, Any], *, as_text: bool = False) -> ParsedMessage:
    """Parse plain data, in camelCase or snake_case, as one of Google's messages.

    With `as_text`, the data is from a `yaml_document`: numbers and booleans are text, and a single
    value is allowed in place of a list, as in gcloud's ``--config`` files.
    """
    reader = _MessageReader(as_text=as_text)
    json = reader.read(_message_class(name).DESCRIPTOR, data, (), ())
    if reader.is_too_large:
        reader.problems = [FieldProblem((), "too large to be a job")]
    return ParsedMessage(json, tuple(reader.problems), reader.origins)


def _message_class(name: MessageName) -> Any:
    with _importing:
        custom, tuning = _import_types()
    wrapped = getattr(tuning if name == "HyperparameterTuningJob" else custom, name)
    return type(wrapped.pb(wrapped()))


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
            oneof = known.containing_oneof  # of its fields, only one may be set
            group = f"one of {oneof.name}" if oneof is not None else known.name
            if group in keys:
                self._add((*source, key), f"conflicts with {keys[group]}; expected one", True)
            keys[group] = key
            target = (*path, known.json_name)
            self.origins[target] = (*source, key)
            result[known.json_name] = self._field(known, value, (*source, key), target)
        return result

    def _field(self, kind: Any, value: Any, source: Path, path: Path) -> Any:
        inner = kind.message_type
        if inner is not None and inner.GetOptions().map_entry:
            if not hasattr(value, "items"):
                return self._add_expected("names with values, one a line", value, source)
            of_value = inner.fields_by_name["value"]
            entries = value.items()
            sources = [((*source, key), (*path, key)) for key in value]
            values = self._values(of_value, value.values(), sources)
            return {key: each for (key, _), each in zip(entries, values, strict=True)}
        if not _is_repeated(kind):
            return self._value(kind, value, source, path)
        if isinstance(value, list | tuple):
            sources = [((*source, index), (*path, index)) for index in range(len(value))]
            return self._values(kind, value, sources)
        form = _form_of_list(inner, value)
        if form or not self.as_text:
            return self._add_expected(f"a list{form}", value, source)
        return self._values(kind, [value], [(source, (*path, 0))])

    def _values(
        self, kind: Any, values: Iterable[Any], paths: Iterable[tuple[Path, Path]]
    ) -> list[Any]:
        result = []
        for value, (source, path) in zip(values, paths, strict=True):
            self.origins[path] = source
            result.append(self._value(kind, value, source, path))
        return result

    def _value(self, kind: Any, value: Any, source: Path, path: Path) -> Any:
        inner = kind.message_type
        if inner is not None and not inner.full_name.startswith("google.protobuf."):
            return self.read(inner, value, source, path)
        type_name = inner.full_name if inner is not None else kind.cpp_type
        expected = _EXPECTED.get(type_name) or f"a {kind.name}"
        if self.as_text and expected == "true or false":
            value = _BOOLEANS.get(str(value).lower(), value)
        try:
            return _parse_value(kind, value)
        except _PARSE_ERRORS:
            if kind.enum_type is not None:
                expected = _expected_names(kind.enum_type, str(value))
            return self._add_expected(expected, value, source)

    def _add_unknown(self, key: str, known: Mapping[str, Any], source: Path) -> None:
        hint = did_you_mean(str(key), known) if len(self.problems) < _MOST_HINTS else ""
        hint = hint or f"; known here: {', '.join(known)}"
        self._add((*source, key), f"unknown field{hint}", of_key=True)

    def _add_expected(self, expected: str, value: Any, source: Path) -> None:
        kind, semicolon, hint = expected.partition(";")
        self._add(source, f"expected {kind}, got {describe_value(value)}{semicolon}{hint}")

    def _add(self, source: Path, message: str, of_key: bool = False) -> None:
        self.problems.append(FieldProblem(source, message, of_key))


def _form_of_list(message: Any, value: Any) -> str:
    """Return how names and values are written as a list, if `value` has them as a section."""
    is_pairs = message is not None and [each.name for each in message.fields] == ["name", "value"]
    if not is_pairs or not hasattr(value, "keys") or value.keys() <= {"name", "value"}:
        return ""
    return f", such as - {{name: {next(iter(value))}, value: …}}"


def _is_repeated(kind: Any) -> bool:
    if hasattr(kind, "is_repeated"):
        return bool(kind.is_repeated)
    return bool(kind.label == kind.LABEL_REPEATED)  # of protobuf before 6.31; later ones warn


def _parse_value(kind: Any, value: Any) -> Any:
    """Parse a scalar, or a message with a JSON form of its own, as protobuf does."""
    if value is None or (isinstance(value, str) and "\0" in value):
        raise ValueError(value)
    message = GetMessageClass(kind.containing_type)()
    json_format.ParseDict({kind.json_name: [value] if _is_repeated(kind) else value}, message)
    parsed = getattr(message, kind.name)
    parsed = parsed[0] if _is_repeated(kind) else parsed
    if kind.message_type is not None:
        return json_format.MessageToDict(parsed)
    if kind.enum_type is not None:
        return kind.enum_type.values_by_number[parsed].name
    if isinstance(parsed, float) and not math.isfinite(parsed):
        return str(value)
    return parsed


def _expected_names(enum: Any, value: str) -> str:
    """Return the names of an enum, or only the one that a value may mean if there are many."""
    names = [name for name in enum.values_by_name if not name.endswith("_UNSPECIFIED")]
    suggest = suggest_accelerator if enum.name == "AcceleratorType" else did_you_mean
    hint = suggest(value, names)
    if hint and len(names) > _MOST_NAMES:
        return f"one of {len(names)} names{hint}"
    return f"{join_names(names, 'or')}{hint}"
