"""Values of a module that is only read, and what can be done with them: paths above all.

Texts, numbers, tuples, dictionaries and paths are themselves. Paths are those of the container.
What is none of these, or is not certain, is `Unknown`: nothing is guessed.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from distlaunch.render.templates import CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LONGEST = 4096
"""Characters of a text from which it is not looked at."""

HOMES = ("/Users/", "/home/")
"""Where people's own folders are: of a container, /root is one that may well hold something."""

_MOST_PARTS = 1024  # of a tuple, those of the tuples in it too: each takes time to be looked at

_SET_BY_GOOGLE = re.compile(r"AIP_|CLOUD_ML_|TF_CONFIG$|CLUSTER_SPEC$")
# What could make a text of any length: in the form of a value, in a template for format, and for %.
_WIDE = re.compile(r"[0-9]{3}|\*")
_WIDE_FIELD = re.compile(r"\{[^{}]*([0-9]{3}|\{)")
_WIDE_PLACE = re.compile(r"%(\([^)]*\))?[^a-zA-Z%]*([0-9]{3}|\*)")


class Unknown(Exception):
    """What a value is cannot be told."""


@dataclass(frozen=True, slots=True)
class Named:
    """Something of another package, by its full name, as ``os.path.join``."""

    name: str


@dataclass(frozen=True, slots=True)
class Given:
    """What a function of ``data.py`` gives.

    Parameters
    ----------
    kind
        ``Records``, ``Arrays``, or ``Dataset`` for a tf.data.Dataset of the user's own.
    file, line
        Where it is made.
    pattern
        The files of records, None where it cannot be told.
    batch
        Rows of a batch of a Dataset, None where it cannot be told.
    """

    kind: str
    file: str
    line: int
    pattern: str | None = None
    batch: int | None = None

    @property
    def where(self) -> str:
        """The place in the source."""
        return f"{self.file}:{self.line}"

    def then(self, name: str, rows: Any) -> Given:
        """Return a Dataset behind one more of its methods, which is given this first."""
        if name == "batch":
            return replace(self, batch=rows if isinstance(rows, int) else None)
        return self if name in _KEEP_BATCHES else replace(self, batch=None)


_KEEP_BATCHES = ("cache", "map", "prefetch", "shuffle", "skip", "take", "with_options")


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables that a program finds in its container.

    Parameters
    ----------
    said
        Those that the job sets.
    is_all
        Whether there are no others, but Google's own.
    """

    said: Mapping[str, str]
    is_all: bool

    def get(self, name: str, default: Any = None) -> Any:
        """Return a variable's value.

        Raises
        ------
        Unknown
            If Google sets it, or perhaps the image does.
        """
        if name in self.said:
            return self.said[name]
        if _SET_BY_GOOGLE.match(name) or not self.is_all:
            raise Unknown
        return default


def add(left: Any, right: Any) -> Any:
    """Return ``left + right``."""
    if type(left) is not type(right) or not isinstance(left, (str, int, tuple)):
        raise Unknown
    return checked(left + right)


def divide(left: Any, right: Any) -> PurePosixPath:
    """Return ``left / right``, a path."""
    if not isinstance(left, PurePosixPath) and not isinstance(right, PurePosixPath):
        raise Unknown
    return _checked_path(PurePosixPath(left) / PurePosixPath(right))


def fill(template: Any, values: Any) -> str:
    """Return ``template % values``."""
    if not isinstance(template, str) or _WIDE_PLACE.search(template):
        raise Unknown
    words = values if isinstance(values, tuple) else (values,)
    _see_written(values.values() if isinstance(values, dict) else words)
    return text(template % values)


def text(value: Any, form: str = "") -> str:
    """Return a value as an f-string writes it."""
    _see_written([value])
    if _WIDE.search(form):
        raise Unknown
    return str(checked(format(str(value) if isinstance(value, PurePosixPath) else value, form)))


def _see_written(words: Iterable[Any]) -> None:
    """See that it is certain how values are written."""
    if not all(isinstance(word, (str, int, float, PurePosixPath)) for word in words):
        raise Unknown


def checked(value: Any) -> Any:
    """Return a value that is not too long to be looked at."""
    if isinstance(value, str) and len(value) > LONGEST:
        raise Unknown
    if isinstance(value, tuple):
        _see_few(value)
    return value


def _see_few(value: tuple[Any, ...]) -> None:
    """See that a tuple has few parts in all, where one that is there twice counts twice."""
    parts, tuples = 0, [value]
    while tuples:
        inner = tuples.pop()
        parts += len(inner)
        if parts > _MOST_PARTS:
            raise Unknown
        tuples += [part for part in inner if isinstance(part, tuple)]


def _checked_path(path: PurePosixPath) -> PurePosixPath:
    checked(str(path))
    return path


def truth(value: Any) -> bool:
    """Return whether a value counts as true."""
    if not is_plain(value):
        raise Unknown
    return bool(value)


def is_plain(value: Any) -> bool:
    """Whether a value is certain all through."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (str, int, float))


def attribute(value: Any, name: str) -> Any:
    """Return ``value.name``."""
    if isinstance(value, Named):
        return Named(f"{value.name}.{name}")
    if isinstance(value, PurePosixPath) and name == "parents":
        return tuple(value.parents)
    if isinstance(value, PurePosixPath) and name in ("parent", "name", "stem", "suffix"):
        return getattr(value, name)
    raise Unknown


def method(value: Any, name: str, words: list[Any]) -> Any:
    """Return what a method of a text or a path gives."""
    if isinstance(value, str) and name in _OF_TEXTS:
        _see_written(words)
        if name == "format" and _WIDE_FIELD.search(value):
            raise Unknown
        return checked(getattr(value, name)(*words))
    if isinstance(value, PurePosixPath) and name in _OF_PATHS:
        found = getattr(value, name)(*words)
        return _checked_path(found) if isinstance(found, PurePosixPath) else found
    if isinstance(value, PurePosixPath) and name in ("resolve", "absolute"):
        return _absolute(value)
    raise Unknown


_OF_TEXTS = ("format", "lower", "lstrip", "removeprefix", "removesuffix", "rstrip", "strip")
_OF_PATHS = ("as_posix", "joinpath", "with_name", "with_suffix")


def function(name: str) -> Callable[..., Any]:
    """Return a function of the standard library or of TensorFlow's, by its full name.

    Raises
    ------
    Unknown
        If it is none of those that make paths.
    """
    if name not in _FUNCTIONS:
        raise Unknown
    return _FUNCTIONS[name]


def _absolute(path: Any) -> Any:
    kind = PurePosixPath if isinstance(path, PurePosixPath) else str
    return kind(posixpath.normpath(posixpath.join(CODE, _path(path))))


def _path(path: Any) -> str:
    """Return a path as a text; what only looks like one is not to be touched."""
    found = text(path)
    if "://" in found or found.startswith("~"):
        raise Unknown
    return found


def _join(*parts: Any) -> str:
    return text(posixpath.join(*map(text, parts)))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "str": text,
    "os.fspath": text,
    "os.getcwd": lambda: CODE,
    "os.path.abspath": _absolute,
    "os.path.basename": lambda path: posixpath.basename(text(path)),
    "os.path.dirname": lambda path: posixpath.dirname(text(path)),
    "os.path.expanduser": text,
    "os.path.join": _join,
    "os.path.normpath": lambda path: posixpath.normpath(_path(path)),
    "os.path.realpath": _absolute,
    "pathlib.Path": PurePosixPath,
    "pathlib.Path.cwd": lambda: PurePosixPath(CODE),
    "pathlib.Path.home": lambda: PurePosixPath("~"),
    "pathlib.PosixPath": PurePosixPath,
    "pathlib.PurePath": PurePosixPath,
    "pathlib.PurePosixPath": PurePosixPath,
    "posixpath.join": _join,
    "tensorflow.io.gfile.join": _join,
}
