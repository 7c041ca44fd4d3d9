"""Plain data → one of Google's messages, with every problem and its path.

protobuf's own parser stops at the first problem. This one walks the message's description and
collects them all; where it finds none, protobuf has the last word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distlaunch.errors import did_you_mean
from distlaunch.job.wording import describe, dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Path = tuple["str | int", ...]

_WRAPPERS = re.compile(
    r"google\.protobuf\.(Bool|Bytes|Double|Float|U?Int(32|64)|String)Value", re.ASCII
)
_MOST_VALUES = 20_000  # in a job; aliases of YAML's can multiply
_MOST_HINTS = 100  # each looks for a similar name
_MOST_NAMED = 6  # values of an enum that are listed beside a hint
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "infinity": "Infinity"}
_EXPECTED = {
    "google.protobuf.Duration": "a duration in seconds, as 3600s",
    "google.protobuf.Timestamp": "a time, as 2026-11-21T12:00:00Z",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a message cannot hold.

    Parameters
    ----------
    path
        Where, in the words of the data.
    what
        What is wrong there, and what was expected.
    of_key
        Whether the key itself is wrong, and not its value.
    """

    path: Path
    what: str
    of_key: bool = False

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.what}" if self.path else self.what


@dataclass(frozen=True, slots=True)
class Parsed:
    """What data says as a message.

    Parameters
    ----------
    json
        The same in Google's JSON names, numbers as numbers, enums by name. What the data has
        empty is empty here, and what it lacks is missing.
    problems
        What the message cannot hold.
    origins
        The path in the data of every path in `json` that is written differently there.
    """

    json: dict[str, Any]
    problems: tuple[Finding, ...]
    origins: Mapping[Path, Path]


def parse_message(message: Any, data: Mapping[str, Any], *, as_text: bool) -> Parsed:
    """Read data as a message (see `distlaunch.job.vertex.messages.parse`)."""
    walk = _Walk(as_text=as_text)
    json = walk.message(message.DESCRIPTOR, data, (), ())
    if walk.is_too_large:
        walk.problems = [Finding((), "too large to be a job")]
    if not walk.problems:
        walk.last_word(message, json)
    return Parsed(json, tuple(walk.problems), walk.origins)


class _WrongError(Exception):
    """What was expected of a value."""


@dataclass
class _Walk:
    as_text: bool
    problems: list[Finding] = field(default_factory=list)
    origins: dict[Path, Path] = field(default_factory=dict)

    @property
    def is_too_large(self) -> bool:
        """Whether there is more than is worth reading."""
        return len(self.origins) > _MOST_VALUES

    def message(self, kind: Any, data: Any, here: Path, there: Path) -> dict[str, Any]:
        """Read a message; `here` is its path in the data, `there` in the result."""
        if not hasattr(data, "items"):
            self._expected("a section", data, here)
            return {}
        by_name = {each.name: each for each in kind.fields}
        by_json = {each.json_name: each for each in kind.fields}
        made: dict[str, Any] = {}
        taken: dict[str, str] = {}
        for key, value in () if self.is_too_large else data.items():
            found = by_json.get(key) or by_name.get(key)
            if found is None:
                self._unknown(key, by_name if "_" in str(key) else by_json, here)
                continue
            group = _group(found)
            if value is None:
                continue
            if group in taken:
                self._note((*here, key), f"stands beside {taken[group]}; expected one", of_key=True)
            taken[group] = key
            path = (*there, found.json_name)
            self.origins[path] = (*here, key)
            made[found.json_name] = self._field(found, value, (*here, key), path)
        return made

    def last_word(self, message: Any, json: dict[str, Any]) -> None:
        """Let protobuf read what nothing was found in."""
        from google.protobuf import json_format

        try:
            json_format.ParseDict(json, message)
        except json_format.ParseError as problem:
            self._note((), " ".join(str(problem).split()))

    def _field(self, kind: Any, value: Any, here: Path, there: Path) -> Any:
        if _is_map(kind):
            return self._map(kind, value, here, there)
        if not _is_repeated(kind):
            return self._one(kind, value, here, there)
        if not isinstance(value, list | tuple):
            return self._alone(kind, value, here, there)
        made = []
        for index, item in enumerate(value):
            path = (*there, index)
            self.origins[path] = (*here, index)
            made.append(self._one(kind, item, (*here, index), path))
        return made

    def _alone(self, kind: Any, value: Any, here: Path, there: Path) -> Any:
        """Read a value in place of a list; in a file it is a list of one, as gcloud reads it."""
        if not self.as_text:
            return self._expected("a list", value, here)
        path = (*there, 0)
        self.origins[path] = here
        return [self._one(kind, value, here, path)]

    def _map(self, kind: Any, value: Any, here: Path, there: Path) -> Any:
        if not hasattr(value, "items"):
            return self._expected("names with values, one a line", value, here)
        values = kind.message_type.fields_by_name["value"]
        made = {}
        for key, item in value.items():
            path = (*there, key)
            self.origins[path] = (*here, key)
            made[key] = self._one(values, item, (*here, key), path)
        return made

    def _one(self, kind: Any, value: Any, here: Path, there: Path) -> Any:
        inner = kind.message_type
        try:
            if inner is None:
                return self._scalar(kind, value)
            if _WRAPPERS.fullmatch(inner.full_name):
                return self._scalar(inner.fields_by_name["value"], value)
            if inner.full_name.startswith("google.protobuf."):
                return _well_known(inner, value)
        except _WrongError as wrong:
            return self._expected(str(wrong), value, here)
        return self.message(inner, value, here, there)

    def _scalar(self, kind: Any, value: Any) -> Any:
        if kind.cpp_type == kind.CPPTYPE_ENUM:
            return _enum(kind.enum_type, value)
        return _READERS[_kind_name(kind)](value, self.as_text)

    def _unknown(self, key: str, known: Mapping[str, Any], here: Path) -> None:
        hint = did_you_mean(str(key), known) if len(self.problems) < _MOST_HINTS else ""
        hint = hint or f"; known here: {', '.join(known)}"
        self._note((*here, key), f"unknown field{hint}", of_key=True)

    def _expected(self, expected: str, value: Any, here: Path) -> None:
        """Note a value that is not what was expected."""
        what, _, hint = expected.partition(";")
        more = f";{hint}" if hint else ""
        self._note(here, f"expected {what}, got {describe(value)}{more}")

    def _note(self, path: Path, what: str, *, of_key: bool = False) -> None:
        self.problems.append(Finding(path, what, of_key))


def _is_repeated(kind: Any) -> bool:
    old = getattr(kind, "label", None)  # what protobuf before 6.31 says it with
    return bool(kind.is_repeated if hasattr(kind, "is_repeated") else old == kind.LABEL_REPEATED)


def _is_map(kind: Any) -> bool:
    inner = kind.message_type
    return inner is not None and inner.GetOptions().map_entry


def _group(kind: Any) -> str:
    """Return what a field has in common with those of which there can be but one."""
    oneof = kind.containing_oneof
    return f"one of {oneof.name}" if oneof is not None else str(kind.name)


def _kind_name(kind: Any) -> str:
    """Return what kind of scalar a field holds; bytes are text in JSON."""
    return next(name for name in _READERS if kind.cpp_type == getattr(kind, f"CPPTYPE_{name}"))


def _enum(kind: Any, value: Any) -> str:
    by_name = kind.values_by_name
    if isinstance(value, str) and value in by_name:
        return value
    number = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value
    if isinstance(number, int) and not isinstance(number, bool) and number in kind.values_by_number:
        return str(kind.values_by_number[number].name)
    real = [name for name in by_name if not name.endswith("_UNSPECIFIED")]
    hint = did_you_mean(str(value), real)
    short = hint and len(real) > _MOST_NAMED
    expected = f"one of {len(real)} names" if short else " or ".join(_last_two(real))
    raise _WrongError(f"{expected}{hint}")


def _last_two(names: list[str]) -> list[str]:
    """Join all names but the last with commas."""
    return [part for part in (", ".join(names[:-1]), names[-1]) if part]


def _text(value: Any, _as_text: bool) -> str:
    if not isinstance(value, str):
        raise _WrongError("text")
    if "\0" in value or not _is_unicode(value):
        raise _WrongError("text without NUL or broken characters")
    return value


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _boolean(value: Any, as_text: bool) -> bool:
    if isinstance(value, bool):
        return value
    if as_text and isinstance(value, str) and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    raise _WrongError("true or false")


def _whole(least: int, most: int) -> Callable[[Any, bool], int]:
    def read(value: Any, _as_text: bool) -> int:
        number = _number(value)
        if number is None or number != number // 1:
            raise _WrongError("a whole number")
        if not least <= number <= most:
            raise _WrongError(f"a whole number of at most {most.bit_length()} bits")
        return int(number)

    return read


def _number(value: Any) -> int | float | None:
    """Return a finite number, whether or not it is written as text; whole ones exactly."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        if isinstance(value, str):
            return int(value) if _WHOLE.fullmatch(value) else _fraction_of(value)
        return value if isinstance(value, int) else _finite(value)
    except (ValueError, OverflowError):
        return None


def _fraction_of(text: str) -> float | None:
    return _finite(float(text)) if _DECIMAL.fullmatch(text) else None


def _finite(value: float) -> float | None:
    return value if value - value == 0 else None


def _fraction(value: Any, _as_text: bool) -> float | str:
    number = _number(value)
    if number is not None:
        try:
            return float(number)
        except OverflowError:
            raise _WrongError("a number") from None
    sign, name = _split_sign(str(value).lower())
    if isinstance(value, bool) or name not in _SPECIAL:
        raise _WrongError("a number")
    return f"{sign}{_SPECIAL[name]}" if name != "nan" else "NaN"


def _split_sign(text: str) -> tuple[str, str]:
    """Split what protobuf or YAML writes for an infinity, as ``-Infinity`` or ``-.inf``."""
    sign = "-" if text.startswith("-") else ""
    return sign, text.removeprefix(sign or "+").removeprefix(".")


_READERS: dict[str, Callable[[Any, bool], Any]] = {
    "BOOL": _boolean,
    "DOUBLE": _fraction,
    "FLOAT": _fraction,
    "INT32": _whole(-(2**31), 2**31 - 1),
    "INT64": _whole(-(2**63), 2**63 - 1),
    "UINT32": _whole(0, 2**32 - 1),
    "UINT64": _whole(0, 2**64 - 1),
    "STRING": _text,
}


def _well_known(kind: Any, value: Any) -> Any:
    """Read a duration, a time or another of those that protobuf writes in a way of its own."""
    from google.protobuf import json_format
    from google.protobuf.message_factory import GetMessageClass

    message = GetMessageClass(kind)()
    try:
        json_format.ParseDict(value, message)
        return json_format.MessageToDict(message)
    except (json_format.ParseError, ValueError, TypeError, AttributeError):
        raise _WrongError(_EXPECTED.get(kind.full_name, f"a {kind.name}")) from None
