"""The process of a task: its environment, signals and exit code."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable

from .options import CHIEF_FIRST_SECONDS
from .task import messages, stop_signal
from .task.events import append_event

# A recursion without end has thousands of lines, of which the last ones matter.
_LONGEST_TRACEBACK = 100_000


def launch(train: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> int:
    """Call a training function as the program of a task.

    An error is printed in one line, and ends the process without waiting for the other tasks.

    Parameters
    ----------
    train
        Makes a :class:`~distlaunch_trainer.Run` of the options, and trains.
    options
        The arguments, parsed by :func:`distlaunch_trainer.options.parser`.

    Returns
    -------
    int
        The exit code: 0, 143 after a stop signal, or 80 if the GPUs were idle. The process exits
        with 1 after an error.
    """
    # keras.json or a shell may set another, which does not train under tf.distribute.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # Read before TensorFlow is imported: by default it requests 64 MiB of a bucket at each entry
    # into a file, and keeps none of it.
    os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "4")
    os.environ.setdefault("GCS_READ_CACHE_MAX_SIZE_MB", "256")
    if not options.debug:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # less of TensorFlow's own log
    messages.capture_logging()
    stop_signal.block()  # until the run handles SIGTERM
    try:
        return _exit_code(train, options)
    finally:
        stop_signal.unblock()


def _exit_code(train: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> int:
    from .cluster.role import Role, role_from
    from .errors import IdleStopped, TrainerError, TrainingStopped
    from .parameter_server.servers import is_server, serve
    from .task import explain  # imports TensorFlow

    role = Role()
    try:
        role = role_from(os.environ)
        if is_server(role, options):
            serve(role, options)
        train(options)
    except IdleStopped as stopped:
        messages.error(str(stopped))
        return stop_signal.IDLE
    except TrainingStopped as stopped:
        messages.notice(f"trainer: {stopped}")
        return stop_signal.STOPPED
    except Exception as error:  # noqa: BLE001 - reported in one line like every other
        is_known = isinstance(error, TrainerError)
        problem = str(error) if is_known else explain.final_message(error)
        if not role.is_chief:
            stop_signal.sleep(CHIEF_FIRST_SECONDS)
        _end_with(problem, debug=options.debug)
    return 0


def _end_with(problem: str, *, debug: bool) -> None:
    """Report a problem and end, without waiting for peers as TensorFlow's own shutdown would."""
    stop_signal.end_if_pending()  # a peer that received a stop signal may be the problem
    trace = traceback.format_exc()
    if not debug:  # the launcher writes it into the task's log
        append_event("error", {"traceback": trace[-_LONGEST_TRACEBACK:]})
    messages.error(problem, trace=trace if debug else "")
    sys.stdout.flush()
    os._exit(1)
