"""Whatever is raised in a run, made into one line with the place that a person can go to."""

from __future__ import annotations

import contextlib
import re
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from .errors import DataError, ModelError, TrainerError, gist

_PEERS_FIRST_SECONDS = 5.0
_LOST_PEER = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_ENGINE = Path(__file__).parent
_USERS = _ENGINE.parent
_OURS = {_USERS / "task.py"}


def from_user(name: str, function: Callable[[], Any]) -> Any:
    """Return what a function of the user's gives."""
    with user_code(f"{name} failed"):
        return function()


@contextlib.contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into one line with the place.

    Raises
    ------
    ModelError
        In place of every exception that is no ``TrainerError`` already, nor the loss of a peer.
    """
    try:
        yield
    except TrainerError:
        raise
    except Exception as error:
        # The user's variables are agreed on by all tasks as they are made.
        if _is_lost_peer(error):
            raise
        raise ModelError(f"{what}: {_told(error)}") from error


def ending(error: Exception) -> str:
    """Return a line for an exception that ends the run and that nobody has told yet.

    Where another task's end is the cause, this one waits a little, so that the task that caused it
    is the first to end.
    """
    if _is_lost_peer(error):
        time.sleep(_PEERS_FIRST_SECONDS)
        return "this task lost its peers: another task ended"
    if _place(error):
        return _told(error)
    return f"unexpected {_told(error)}; --debug shows where it comes from"


@contextlib.contextmanager
def steps(bad_record: Callable[[], str | None]) -> Iterator[None]:
    """Turn TensorFlow's error of a step into the record that caused it.

    Parameters
    ----------
    bad_record
        Looks for a record of this task's that cannot be read or parsed.

    Raises
    ------
    DataError
        If there is such a record.
    TrainerError
        In place of every other error of TensorFlow's, but the loss of a peer.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if _is_lost_peer(error):
            raise
        problem = bad_record()
        if problem:
            raise DataError(problem) from error
        raise TrainerError(f"a step failed: {_told(error)}") from error


def _is_lost_peer(error: Exception) -> bool:
    """Return whether a collective has failed; Cloud Storage's failures come as the same types."""
    text = str(error)
    if "HTTP request" in text:
        return False
    return isinstance(error, _LOST_PEER) or "Collective ops is aborted" in text


def _told(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        name = Path(error.filename or "?").name
        return f"{type(error).__name__}: {error.msg} ({name}, line {error.lineno})"
    return f"{type(error).__name__}: {gist(error)}{_place(error)}"


def _place(error: BaseException) -> str:
    """Return the last place of the error in the user's own files."""
    trace = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    # In a traced function the places stand in the message.
    traced = re.findall(r'File "([^"\n]+)", line (\d+)', str(error))
    for name, line in reversed(trace + traced):
        path = Path(name)
        if path in _OURS or path.is_relative_to(_ENGINE):
            continue
        if path.is_relative_to(_USERS):
            return f" ({path.relative_to(_USERS.parent)}, line {line})"
    return ""
