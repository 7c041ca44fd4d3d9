"""Check the job's arguments with the parser of the bundled trainer."""

from __future__ import annotations

import contextlib
import importlib.util
from typing import TYPE_CHECKING, NoReturn

from distlaunch import resources
from distlaunch.checks.problem import error
from distlaunch.errors import did_you_mean
from distlaunch.job.model import RangeParameter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import ChoiceParameter, Job

_HELP = ("-h", "--help")


class _ArgumentError(Exception):
    """The message of a parser."""


def problems(arguments: Iterable[str], job: Job, task: Path) -> Iterator[Problem]:
    """Yield arguments and tuned parameters that the trainer's parser refuses.

    Nothing is checked if `task`, the project's module with the parser, is not the bundled one.
    """
    parser = _bundled_parser(task)
    if parser is None:
        return
    for words in _by_option(arguments):
        yield from _refusal(parser, words, "args")
    for name, parameter in (job.tuning.parameters if job.tuning else {}).items():
        where = f"tuning.parameters.{name}"
        for values in _samples(parameter):
            refusals = [list(_refusal(parser, [f"--{name}={value}"], where)) for value in values]
            if all(refusals):
                yield from refusals[0]
                break


def _bundled_parser(task: Path) -> argparse.ArgumentParser | None:
    """Return the parser of the bundled trainer, None for a module that is not a copy of it."""
    bundled = resources.skeleton() / "base" / "trainer" / "task.py"
    with contextlib.suppress(OSError):
        if task.read_bytes() == bundled.read_bytes():
            spec = importlib.util.spec_from_file_location("distlaunch_bundled_task", bundled)
            if spec and spec.loader:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                parser: argparse.ArgumentParser = module.parser()
                parser.error = _raise  # type: ignore[method-assign]
                return parser
    return None


def _raise(message: str) -> NoReturn:
    raise _ArgumentError(message)


def _by_option(arguments: Iterable[str]) -> list[list[str]]:
    """Return each option with its values, so that each is refused by itself."""
    groups: list[list[str]] = []
    for word in arguments:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(word)
    return [group for group in groups if group[0] not in _HELP]


def _refusal(parser: argparse.ArgumentParser, words: list[str], where: str) -> Iterator[Problem]:
    try:
        _, unknown = parser.parse_known_args(words)
    except _ArgumentError as refusal:
        message = str(refusal).removeprefix("argument ")
        remedy = "'python -m trainer.task --help' lists the options and their values"
        yield error("argument-unknown", where, message, remedy)
        return
    if not unknown:
        return
    name = unknown[0].partition("=")[0]
    if not name.startswith("-"):
        what = f"unexpected positional argument {name!r}"
        yield error("argument-unknown", where, what, f"write --NAME={name}")
        return
    names = [f"--{each.replace('_', '-')}" for each in vars(parser.parse_args([]))]
    remedy = did_you_mean(name, names).removeprefix("; ") or f"it has {', '.join(sorted(names))}"
    yield error("argument-unknown", where, f"the trainer has no option {name}", remedy)


def _samples(parameter: RangeParameter | ChoiceParameter) -> Iterator[tuple[str, ...]]:
    """Yield values of a tuned parameter, each in the ways in which it may be written."""
    if not isinstance(parameter, RangeParameter):
        for value in parameter.values:
            yield _written(float(value)) if parameter.is_numeric else (value,)
        return
    low, high = parameter.minimum, parameter.maximum
    ends = [end for end in (low, high) if end > 0 or parameter.scale == "linear"]
    yield from map(_written, ends)
    if not parameter.is_integer and low < high:
        yield (repr(low + (high - low) / 7.3),)


def _written(number: float) -> tuple[str, ...]:
    return (str(int(number)), repr(number)) if number % 1 == 0 else (repr(number),)
