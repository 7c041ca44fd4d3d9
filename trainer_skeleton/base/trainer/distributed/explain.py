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

from .cluster import Role
from .errors import DataError, ModelError, TrainerError, gist

_PEERS_FIRST_SECONDS = 5.0
_LOST_PEER = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_ENGINE = Path(__file__).parent
_USERS = _ENGINE.parent


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
        In place of every exception that is no ``TrainerError`` already.
    """
    try:
        yield
    except TrainerError:
        raise
    except Exception as error:
        raise ModelError(f"{what}: {_told(error)}") from error


def unexpected(error: Exception) -> str:
    """Return a line for an exception that nobody has foreseen."""
    return f"unexpected {_told(error)}; --debug shows where it comes from"


@contextlib.contextmanager
def steps(role: Role, bad_record: Callable[[], str | None]) -> Iterator[None]:
    """Turn TensorFlow's error of a step into the record or the task that caused it.

    Parameters
    ----------
    role
        This task.
    bad_record
        Looks for a record of this task's that cannot be read or parsed.

    Raises
    ------
    DataError
        If there is such a record.
    TrainerError
        In place of every other error of TensorFlow's.
    """
    try:
        yield
    except tf.errors.OpError as error:
        problem = bad_record()
        if problem:
            raise DataError(problem) from error
        if isinstance(error, _LOST_PEER) or "Collective ops is aborted" in error.message:
            # The task that caused it should be the first to end.
            time.sleep(_PEERS_FIRST_SECONDS)
            raise TrainerError(f"{role.name} lost its peers: another task ended") from error
        raise TrainerError(f"a step failed: {_told(error)}") from error


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {gist(error)}{_place(error)}"


def _place(error: BaseException) -> str:
    """Return the last place of the error in the user's own files."""
    trace = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    # In a traced function the places stand in the message.
    traced = re.findall(r'File "([^"\n]+)", line (\d+)', str(error))
    for name, line in reversed(trace + traced):
        path = Path(name)
        if path.is_relative_to(_USERS) and not path.is_relative_to(_ENGINE):
            return f" ({path.relative_to(_USERS.parent)}, line {line})"
    return ""
