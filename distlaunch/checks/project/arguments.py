"""The job's arguments against the options that the trainer has, by its source."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error
from distlaunch.errors import did_you_mean
from distlaunch.job.model import ChoiceParameter, RangeParameter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job

_ADD = "add_argument"
_AT_LEAST, _LEARNING_RATE = "_at_least", "_learning_rate"  # types of the bundled trainer's options
_ABOVE_0 = b"0 < value < math.inf"  # what the latter asks for
_MOST_BITS = 64
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
    least, most
        The smallest and the largest, None where there is none, or where that cannot be told.
    is_positive
        Whether it has to be above 0, and finite.
    """

    is_whole: bool
    least: int | None = None
    most: int | None = None
    is_positive: bool = False

    def takes(self, text: str) -> bool:
        """Whether this is such a number."""
        try:
            value = int(text) if self.is_whole else float(text)
        except ValueError:
            return False
        if self.is_positive and not 0 < value < math.inf:
            return False
        is_enough = self.least is None or value >= self.least
        return is_enough and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        said = "a whole number" if self.is_whole else "a number"
        said += " above 0" if self.is_positive else ""
        said += "" if self.least is None else f" of {self.least} or more"
        return said if self.most is None else f"{said}, {self.most} at most"


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

    def takes(self, value: str) -> bool:
        """Whether it takes a value, as far as that can be told."""
        if self.choices and value not in self.choices:
            return False
        return self.number is None or self.number.takes(value)

    @property
    def expected(self) -> str:
        """What it takes."""
        return ", ".join(self.choices) or str(self.number)


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
        for name, parameter in job.tuning.parameters.items():
            where = f"tuning.parameters.{name}"
            if f"--{name}" not in known:
                yield _unknown(f"--{name}", where, known)
            else:
                yield from _of_search(f"--{name}", parameter, known[f"--{name}"], where)


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
    types = _types(tree, text)
    found: dict[str, Option] = {"-h": Option(False), "--help": Option(False)}
    for call in calls:
        if _adds(call, names):
            added = _option(call, types)
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


def _option(call: ast.Call, types: Mapping[str, Number]) -> dict[str, Option] | None:
    said = {each.arg: each.value for each in call.keywords}
    texts = [each.value for each in call.args if isinstance(each, ast.Constant)]
    names = [text for text in texts if isinstance(text, str) and text.startswith("-")]
    if None in said or not names or len(names) < len(call.args):
        return None
    match said.get("action"):
        case None if "nargs" not in said:
            option = Option(True, _choices(said.get("choices")), _number(said.get("type"), types))
        case ast.Constant(value=str(action)) if action in _FLAGS:
            option = Option(False)
        case ast.Attribute(attr="BooleanOptionalAction") | ast.Name(id="BooleanOptionalAction"):
            names += [f"--no-{name[2:]}" for name in names if name.startswith("--")]
            option = Option(False)
        case _:
            option = Option(None)
    return dict.fromkeys(names, option)


def _types(tree: ast.Module, text: bytes) -> dict[str, Number]:
    """Return what a program's own types of options take, those of the bundled trainer alone."""
    found = {"int": Number(is_whole=True), "float": Number(is_whole=False)}
    for line in tree.body:
        match line:
            case ast.FunctionDef(name=name, args=ast.arguments(defaults=[most])):
                if name == _AT_LEAST:
                    found[name] = Number(is_whole=True, most=_whole(most))
            case ast.FunctionDef(name=name) if name in (_AT_LEAST, _LEARNING_RATE):
                is_positive = name == _LEARNING_RATE and _ABOVE_0 in text
                found[name] = Number(is_whole=name == _AT_LEAST, is_positive=is_positive)
    return found


def _number(said: ast.expr | None, types: Mapping[str, Number]) -> Number | None:
    match said:
        case ast.Name(id=name):
            return types.get(name)
        case ast.Call(func=ast.Name(id=name), args=[least, *rest]) if name == _AT_LEAST:
            known = types.get(name, Number(is_whole=True))
            most = _whole(rest[0]) if rest else known.most
            return replace(known, least=_whole(least), most=most)
    return None


def _whole(said: ast.expr) -> int | None:
    """Return a whole number, one as 2**31 - 1 too; None where that cannot be told."""
    match said:
        case ast.Constant(value=int(value)):
            return value
        case ast.BinOp(
            left=ast.BinOp(
                left=ast.Constant(value=2), op=ast.Pow(), right=ast.Constant(value=int(bits))
            ),
            op=ast.Sub(),
            right=ast.Constant(value=int(less)),
        ) if 0 <= bits <= _MOST_BITS:
            return int(2**bits) - less
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
    if not option.takes(value):
        yield _wrong(f"{name} takes no {value!r}", f"expected {option.expected}")


def _of_search(
    name: str, parameter: RangeParameter | ChoiceParameter, option: Option, where: str
) -> Iterator[Problem]:
    """Yield why a trial would end at once."""
    if option.takes_value is False:
        yield error(
            "argument-unknown",
            where,
            f"{name} takes no value, and a search gives it one",
            f"take it out, and add {name} to args",
        )
        return
    if refused := _refused(parameter, option):
        yield error(
            "argument-unknown",
            where,
            f"{name} takes no {refused}, which the search may give it",
            f"search among what it takes: {option.expected}",
        )


def _refused(parameter: RangeParameter | ChoiceParameter, option: Option) -> str | None:
    """Return what a search may give an option that does not take it, None where it takes all."""
    is_between = isinstance(parameter, RangeParameter) and not parameter.is_integer
    if is_between and option.number and option.number.is_whole:
        return "numbers in between"
    given = (texts for texts in _searched(parameter) if not any(map(option.takes, texts)))
    return next((repr(texts[0]) for texts in given), None)


def _searched(parameter: RangeParameter | ChoiceParameter) -> Iterator[tuple[str, ...]]:
    """Yield values that a search gives, each in the ways in which it may be written."""
    if isinstance(parameter, RangeParameter):
        for end in (parameter.minimum, parameter.maximum):
            if end > 0 or parameter.scale == "linear":  # or no search can be as it is said
                yield _written(end)
    else:
        for value in parameter.values:
            yield _written(float(value)) if parameter.is_numeric else (value,)


def _written(number: float) -> tuple[str, ...]:
    # Not is_integer(): the number may be an int, which has that from Python 3.12 on only.
    return (str(int(number)), repr(number)) if number % 1 == 0 else (repr(number),)


def _unknown(name: str, where: str, known: Mapping[str, Option]) -> Problem:
    those = sorted(each for each in known if each[:2] == "--" and each != "--help")
    remedy = did_you_mean(name, those).removeprefix("; ") or f"it has {', '.join(those)}"
    return error("argument-unknown", where, f"the trainer has no option {name}", remedy)


def _wrong(what: str, remedy: str) -> Problem:
    return error("argument-unknown", "args", what, remedy)
