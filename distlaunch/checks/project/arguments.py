"""The job's arguments against the options that the trainer has, by its source."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error
from distlaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job

_ADD = "add_argument"
_AT_LEAST, _LEARNING_RATE = "_at_least", "_learning_rate"  # types of the bundled trainer's options
_FLAGS = ("store_true", "store_false", "count", "help", "version", "append_const", "store_const")
# What takes in more than can be read off.
_OPEN = (b"parse_known_args", b"add_subparsers", b"parents=", b"parse_intermixed", b"prefix_chars")


@dataclass(frozen=True, slots=True)
class Number:
    """What an option takes for a number.

    Parameters
    ----------
    is_whole
        Whether it has to be a whole one.
    least
        The smallest, None where there is none, or where that cannot be told.
    """

    is_whole: bool
    least: int | None = None

    def takes(self, text: str) -> bool:
        """Whether this is such a number."""
        try:
            value = int(text) if self.is_whole else float(text)
        except ValueError:
            return False
        return self.least is None or value >= self.least

    def __str__(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        return kind if self.least is None else f"{kind} of {self.least} or more"


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a program.

    Parameters
    ----------
    takes_value
        Whether a value has to follow, None where that cannot be told.
    choices
        The only values, empty where there are others or where that cannot be told.
    number
        What number its value has to be, None where it need be none or where that cannot be told.
    """

    takes_value: bool | None = True
    choices: tuple[str, ...] = ()
    number: Number | None = None


def problems(words: tuple[str, ...], job: Job, file: Path) -> Iterator[Problem]:
    """Yield arguments that the program's parser will refuse.

    Parameters
    ----------
    words
        The arguments.
    file
        The program's source, with the parser; where that cannot be read off, nothing is refused.
    """
    known = options(file)
    if known is None:
        return
    yield from _of_words(words, known)
    if job.tuning:
        for name in job.tuning.parameters:
            if f"--{name}" not in known:
                yield _unknown(f"--{name}", f"tuning.parameters.{name}", known)


def options(file: Path) -> dict[str, Option] | None:
    """Return the options that a program's source adds, None where they cannot be told."""
    try:
        text = file.read_bytes()
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    if any(each in text for each in _OPEN) or b"allow_abbrev=False" not in text:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = _names(tree)
    found: dict[str, Option] = {"-h": Option(False), "--help": Option(False)}
    for call in calls:
        if _adds(call, names):
            added = _option(call)
            if added is None:
                return None
            found |= added
    return found if len(found) > 2 else None


def _names(tree: ast.AST) -> set[str]:
    """Return the names that stand for a parser's way to add an option."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == _ADD
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _adds(call: ast.Call, names: set[str]) -> bool:
    match call.func:
        case ast.Attribute(attr=name):
            return name == _ADD
        case ast.Name(id=name):
            return name in names
    return False


def _option(call: ast.Call) -> dict[str, Option] | None:
    said = {each.arg: each.value for each in call.keywords}
    texts = [each.value for each in call.args if isinstance(each, ast.Constant)]
    names = [text for text in texts if isinstance(text, str) and text.startswith("-")]
    if None in said or not names or len(names) < len(call.args):
        return None
    match said.get("action"):
        case None if "nargs" not in said:
            option = Option(True, _choices(said.get("choices")), _number(said.get("type")))
        case ast.Constant(value=str(action)) if action in _FLAGS:
            option = Option(False)
        case ast.Attribute(attr="BooleanOptionalAction") | ast.Name(id="BooleanOptionalAction"):
            names += [f"--no-{name[2:]}" for name in names if name.startswith("--")]
            option = Option(False)
        case _:
            option = Option(None)
    return dict.fromkeys(names, option)


def _number(said: ast.expr | None) -> Number | None:
    match said:
        case ast.Name(id="int"):
            return Number(is_whole=True)
        case ast.Name(id=name) if name in ("float", _LEARNING_RATE):
            return Number(is_whole=False)
        case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=int(least)), *_]):
            return Number(is_whole=True, least=least) if name == _AT_LEAST else None
    return None


def _choices(said: ast.expr | None) -> tuple[str, ...]:
    match said:
        case ast.Tuple(elts=each) | ast.List(elts=each):
            values = [value.value for value in each if isinstance(value, ast.Constant)]
            return tuple(map(str, values)) if len(values) == len(each) else ()
    return ()


def _of_words(words: tuple[str, ...], known: Mapping[str, Option]) -> Iterator[Problem]:
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            return
        if not word.startswith("-"):
            yield _wrong(f"{word!r} is no option", f"write --NAME={word}")
        elif name not in known:
            yield _unknown(name, "args", known)
            if not equals and remaining and not remaining[0].startswith("-"):
                remaining.pop(0)
        elif known[name].takes_value is None:
            return
        elif not known[name].takes_value:
            if equals:
                yield _wrong(f"{name} takes no value", f"write {name}")
        elif not equals and (not remaining or remaining[0].startswith("--")):
            yield _wrong(f"{name} has no value", f"write {name}=VALUE")
        else:
            yield from _of_value(name, value if equals else remaining.pop(0), known[name])


def _of_value(name: str, value: str, option: Option) -> Iterator[Problem]:
    if option.choices and value not in option.choices:
        yield _wrong(f"{name} takes no {value!r}", f"expected {', '.join(option.choices)}")
    if option.number and not option.number.takes(value):
        yield _wrong(f"{name} takes no {value!r}", f"expected {option.number}")


def _unknown(name: str, where: str, known: Mapping[str, Option]) -> Problem:
    those = sorted(each for each in known if each[:2] == "--" and each != "--help")
    remedy = did_you_mean(name, those).removeprefix("; ") or f"it has {', '.join(those)}"
    return error("argument-unknown", where, f"the trainer has no option {name}", remedy)


def _wrong(what: str, remedy: str) -> Problem:
    return error("argument-unknown", "args", what, remedy)
