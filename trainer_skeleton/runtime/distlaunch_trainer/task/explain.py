"""Errors of a run in one line, with the location in the user's code."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import tensorflow as tf

from distlaunch_trainer.errors import (
    DataError,
    ModelError,
    TrainerError,
    TrainingStopped,
    summarize,
)

_PEERS_FIRST_SECONDS = 5.0
_LOST_PEER = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_PACKAGE = Path(__file__).parents[1]
_LAYERS = "/keras/src/layers/"
_INSTALLED = {"site-packages", "dist-packages"}
# In the message of a graph error if reading or parsing the data failed. A name with a number at the
# end, IteratorGetNext/_23, is an edge to an operation of the step.
_INPUT_NODE = re.compile(r"\[\[[^\]\n]*IteratorGetNext\w*(?:\}\})?\]\]")
_FAILED_NODE = re.compile(r"Detected at node (?:while/)?(\S+) defined at")
# Of tf.debugging.enable_check_numerics.
_BAD_NUMBER = re.compile(
    r'Detected Infinity or NaN in output \d+ of (?:graph|eagerly-executing) op "(?P<operation>\w+)"'
    r"(?:.*Tensor had (?P<values>[^\n]+?) values)?",
    re.DOTALL,
)
_CHECK_NODE = re.compile(r"node (?:while/)?(\S+?)/CheckNumericsV2")
# Of tf.debugging.assert_...: its message, condition and values, each in brackets.
_ASSERTION = re.compile(r"assertion failed: (\[.*\])")
_BRACKETS = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]")
_NODE_NAME = re.compile(r"\s*\(\S+:\d+\)")
# Of the sparse categorical cross-entropy.
_LABEL = re.compile(r"label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)")
_OUT_OF_MEMORY = re.compile(r"\bOOM\b|[Oo]ut of memory")
_TOO_LARGE = re.compile(
    r"OOM when allocating tensor with shape(\[[\d,]*\]) and type (\w+) on \S*device:(\w+:\d+)"
)


def from_user(name: str, function: Callable[[], Any]) -> Any:
    """Return the result of a function of the user."""
    with user_code(f"{name} failed"):
        return function()


@contextlib.contextmanager
def user_code(action: str) -> Iterator[None]:
    """Raise an error of the user's code as a ModelError with its location.

    A TrainerError and the loss of a peer are raised as they are.
    """
    try:
        yield
    except TrainerError:
        raise
    except Exception as error:
        # The user's variables are agreed on by all tasks as they are made.
        if _is_lost_peer(error):
            raise
        raise ModelError(f"{action}: {_reason(error)}") from error


@contextlib.contextmanager
def model_build() -> Iterator[None]:
    """Raise an error of Keras while it builds a compiled model for the data as a ModelError.

    It names ``compile()`` for an argument of it: Keras reads losses and metrics only as it builds
    the model.
    """
    with user_code("the model does not take what trainer/data.py gives"):
        try:
            yield
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            if all(Path(frame.filename).name != "compile_utils.py" for frame in frames):
                raise
            raise ModelError(
                "the loss, loss_weights or metrics of model.compile() in trainer/model.py do not "
                f"fit the model's outputs and the labels: {_reason(error)}"
            ) from error


def final_message(error: Exception) -> str:
    """Return a line for an exception that ends the run and has not been reported yet.

    Where another task's end is the cause, this one waits a little, so that the task that caused it
    is the first to end.
    """
    if _is_lost_peer(error):
        time.sleep(_PEERS_FIRST_SECONDS)
        return "this task lost its peers: another task ended"
    if _location(error):
        return _reason(error)
    return f"unexpected {_reason(error)}; --debug shows where it comes from"


@contextlib.contextmanager
def step_errors(
    bad_record: Callable[[], str | None], where: Callable[[], str] | None = None
) -> Iterator[None]:
    """Raise TensorFlow's error of a step as a TrainerError: the bad record, or reason and location.

    `bad_record` searches all data of this task for a record that cannot be read or parsed; it is
    called only if reading or parsing failed. `where` returns the task and the step. The loss of a
    peer is raised as it is.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if _is_lost_peer(error):
            raise
        step = where() if where else "a step"
        if _is_out_of_memory(error):
            raise TrainerError(f"{step} failed: {_out_of_memory(error)}") from error
        if not _is_of_input(error):
            raise TrainerError(f"{step} failed: {_reason(error)}") from error
        if problem := bad_record():
            raise DataError(problem) from error
        reading = f"{step}: reading the data" if where else "reading the data"
        raise TrainerError(f"{reading} failed: {_reason(error)}") from error


def _is_lost_peer(error: Exception) -> bool:
    """Return whether a collective has failed; Cloud Storage's failures come as the same types."""
    text = str(error)
    if "HTTP request" in text:
        return False
    return isinstance(error, _LOST_PEER) or "Collective ops is aborted" in text


def _is_out_of_memory(error: tf.errors.OpError) -> bool:
    # A full disk is a ResourceExhaustedError too.
    is_exhausted = isinstance(error, tf.errors.ResourceExhaustedError)
    return is_exhausted and bool(_OUT_OF_MEMORY.search(str(error)))


def _is_of_input(error: tf.errors.OpError) -> bool:
    """Return whether reading or parsing the data failed."""
    return isinstance(error, tf.errors.DataLossError) or bool(_INPUT_NODE.search(str(error)))


@contextlib.contextmanager
def script_errors(remedy: Callable[[BaseException], str]) -> Iterator[None]:
    """Raise an error that ends the user's script as a TrainerError with the script's file and line.

    `remedy` returns how to fix an error, "" where that is not known. ``TrainingStopped`` and the
    loss of a peer are raised as they are.
    """
    project = Path.cwd()  # which the script may leave
    try:
        yield
    except TrainingStopped:
        raise
    except Exception as error:
        if _is_lost_peer(error):
            raise
        location = _location(error, project, is_script=True)
        if isinstance(error, TrainerError):
            is_named = location.strip(" ()") in str(error)
            raise type(error)(f"{error}{'' if is_named else location}") from error
        way_out = remedy(error)
        raise TrainerError(
            f"{_reason(error, location)}{': ' if way_out else ''}{way_out}"
        ) from error


def _reason(error: BaseException, location: str | None = None) -> str:
    location = _location(error) if location is None else location
    if isinstance(error, tf.errors.OperatorNotAllowedInGraphError):
        return (
            f"{summarize(error).partition('. ')[0]}: use TensorFlow's operations, or define the "
            f"function with def in a file, so that AutoGraph converts it{location}"
        )
    if isinstance(error, SyntaxError):
        name = error.filename or "?"
        path = project_path(name) or name
        return f"{type(error).__name__}: {error.msg} ({path}, line {error.lineno})"
    text = str(error)
    if match := _BAD_NUMBER.search(text):
        output, node = _CHECK_NODE.search(text), match["operation"]
        name = output[1] if output else node
        what = match["values"] or "Infinity or NaN"
        return f"{what} in the output of {node} ({name}){location}"
    location = location or _operation(error)
    if match := _ASSERTION.search(summarize(error)):
        parts = (_NODE_NAME.sub("", part).strip() for part in _BRACKETS.findall(match[1]))
        return f"assertion failed: {_joined(parts)}{location}"
    if match := _LABEL.search(text):
        label, outputs = match.groups()
        return (
            f"the label {label} has no output: the model has {outputs}, for the labels 0 to "
            f"{int(outputs) - 1}{location}: change the last layer, or the labels"
        )
    return f"{type(error).__name__}: {summarize(error)}{location}"


def _joined(parts: Iterable[str]) -> str:
    """Return the parts of a failed assertion's message: ``x = 3; y = 2``."""
    text = "; ".join(part for part in parts if part)
    return text.replace("=; ", "= ").replace(":; ", ": ")


def _out_of_memory(error: tf.errors.OpError) -> str:
    reason = f"out of memory: {summarize(error)}"
    if match := _TOO_LARGE.search(str(error)):
        shape, dtype, device = match.groups()
        reason = f"out of memory on {device}: no room for a tensor of shape {shape}, type {dtype}"
    return (
        f"{reason}{_location(error) or _operation(error)}: use a smaller batch (--batch-size or "
        f"--global-batch-size, batch() of a tf.data.Dataset, batch_size of fit())"
    )


def _operation(error: BaseException) -> str:
    """Return the operation of a compiled function that failed, unless it only reads the data."""
    node = _FAILED_NODE.search(str(error))
    return f" (op {node[1]})" if node and "IteratorGetNext" not in node[1] else ""


def _location(error: BaseException, project: Path | None = None, *, is_script: bool = False) -> str:
    """Return the innermost location of the error in a project's files.

    What the package raises where the user's code calls it, is an error of a script's line.
    """
    trace = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    # The locations of a traced function are in the message.
    traced = re.findall(r'File "([^"\n]+)", line (\d+)', str(error))
    place = _innermost(reversed(trace + traced), project, skips_package=is_script)
    return f" ({place})" if place else ""


def user_location(frame: FrameType, *, skips_package: bool = False) -> str | None:
    """Return the innermost line of the project among a frame and its callers.

    None if there is none, or the package's code is called by it and not left out.
    """
    places = ((each.f_code.co_filename, line) for each, line in traceback.walk_stack(frame))
    return _innermost(places, skips_package=skips_package)


def definition(function: Callable[..., Any]) -> str:
    """Return where a project's file defines a function: `` (model.py, line 3)``; else nothing."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    path = project_path(code.co_filename) if code else None
    return f" ({path}, line {code.co_firstlineno})" if code and path else ""


def operation_location(operation: tf.Operation, *, is_direct: bool = False) -> str | None:
    """Return the line of the project that a traced operation is made by, None if there is none.

    With `is_direct` no layer of Keras makes it for that line.
    """
    places = [(each.filename, each.lineno) for each in reversed(operation.traceback or ())]
    if is_direct:
        places = list(itertools.takewhile(lambda place: _LAYERS not in place[0], places))
    return _innermost(places, skips_package=True)


def _innermost(
    places: Iterable[tuple[str, Any]], project: Path | None = None, *, skips_package: bool
) -> str | None:
    """Return the first place in the project's files, None if a file of the package is before it.

    `skips_package` leaves out the package's files; otherwise what called it is not at fault.
    """
    for name, line in places:
        if Path(name).is_relative_to(_PACKAGE):
            if skips_package:
                continue
            return None
        if path := project_path(name, project):
            return f"{path}, line {line}"
    return None


def project_path(name: str, project: Path | None = None) -> Path | None:
    """Return a file's path below the project's folder, None for files of installed packages."""
    path, project = Path(name), project or Path.cwd()
    if name.startswith("<"):  # of Python itself, or of no file
        return None
    path = path if path.is_absolute() else project / path
    if not path.is_relative_to(project) or _INSTALLED & set(path.parts):
        return None
    return path.relative_to(project)
