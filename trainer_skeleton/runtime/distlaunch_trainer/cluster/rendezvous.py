"""Texts that the tasks exchange without a collective: a wait for a peer can be named and ends.

The tasks give their texts to TensorFlow's coordination service, which runs in the first task. A
collective operation that only some tasks start waits for ever, or fails without the reason.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context

from distlaunch_trainer.errors import ClusterError
from distlaunch_trainer.task import messages
from distlaunch_trainer.task.debugging import is_debugged
from distlaunch_trainer.task.explain import user_location

if TYPE_CHECKING:
    from .role import Role

_SLICE_MILLISECONDS = 2000  # signals are handled in between
_NOTICE_SECONDS = 30.0
# A task may download, evaluate or export alone before it comes.
_LIMIT_SECONDS = 1800.0

_REMEDY = (
    "each task computes a part of the rows, so all must call fit() and evaluate() in the same "
    "order: take the call out of the condition and let the chief use its result; one task may call "
    "predict() alone"
)
_CREATION = "the creation of a model's variables"
LOADING = "the loading of a model or its weights"
_CREATION_REMEDY = (
    "all tasks must create and load the same models: what one task finds in a folder may not be "
    "on another's machine, so have all look into one shared folder before any of them writes, or "
    "leave resuming to the job folder"
)

_exchanges: Counter[str] = Counter()  # of this process, of which all runs use one service


class Rendezvous:
    """The places of a program that all training tasks come to in the same order."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._creates = False  # variables, since the last place

    @property
    def peers(self) -> tuple[str, ...]:
        """The names of the tasks, in the order of their ranks."""
        return self._role.peers

    def meet(self, action: str) -> str:
        """Wait until all tasks have come here; return the action with its location.

        The action, such as ``evaluate()``, is named in messages. ClusterError is raised if another
        task does something else, or does not come within half an hour.
        """
        where = user_location(sys._getframe(1), skips_package=True)  # noqa: SLF001
        place = f"{action} ({where})" if where else action
        if self._role.num_workers == 1:
            return place
        self._creates = action == _CREATION
        waits_for = f"to come to {place} too"
        others = self.exchange("place", {"action": action, "place": place}, waits_for)
        if any(other["action"] != action for other in others):
            calls = (
                f"{name} is at {other['place']}"
                for name, other in zip(self._role.peers, others, strict=True)
            )
            creates = any(other["action"] in {_CREATION, LOADING} for other in others)
            raise ClusterError(
                f"the tasks do different things: {', '.join(calls)}; "
                f"{_CREATION_REMEDY if creates else _REMEDY}"
            )
        return place

    def watch_variables(self, strategy: tf.distribute.Strategy) -> None:
        """Meet where variables are created: all tasks must create the same ones together.

        Only the first one after each other place is met for.
        """
        if self._role.num_workers == 1:
            return
        create = strategy.extended._create_variable  # noqa: SLF001
        thread = threading.get_ident()

        def create_together(*args: Any, **options: Any) -> Any:
            is_program = threading.get_ident() == thread  # not a replica that is traced
            if is_program and not self._creates and tf.distribute.in_cross_replica_context():
                self.meet(_CREATION)
            return create(*args, **options)

        strategy.extended._create_variable = create_together  # noqa: SLF001

    def exchange(self, kind: str, value: Any, waits_for: str) -> list[Any]:
        """Return the values of all tasks, in the order of their ranks.

        Those of one kind are numbered in the order of their calls. Messages name what it waits
        for: ``to call evaluate()``. ClusterError is raised if a task does not exchange its value
        within half an hour.
        """
        if self._role.num_workers == 1:
            return [value]
        name = f"{kind}/{_exchanges[kind]}"
        _exchanges[kind] += 1
        own = json.dumps(value)
        # TensorFlow's public API has no such store.
        context.context().set_config_key_value(_key(name, self._role.rank), own)
        return [
            json.loads(own if rank == self._role.rank else self._wait(name, rank, waits_for))
            for rank in range(self._role.num_workers)
        ]

    def _wait(self, name: str, rank: int, waits_for: str) -> str:
        """Return the text of another task."""
        started, notices = time.monotonic(), 0
        peer = self._role.peers[rank]
        while True:
            try:
                return context.context().get_config_key_value(_key(name, rank), _SLICE_MILLISECONDS)
            except tf.errors.DeadlineExceededError:
                # TensorFlow notices a task that ended by its heartbeat, after 8 to 9 s.
                _check_alive(peer, self._role.addresses[rank])
            seconds = time.monotonic() - started
            if seconds > _LIMIT_SECONDS and not is_debugged():
                raise ClusterError(
                    f"{peer} did not come within {_LIMIT_SECONDS:.0f} s {waits_for}; {_REMEDY}"
                )
            if seconds > (notices + 1) * _NOTICE_SECONDS:
                notices += 1
                messages.notice(f"trainer: waiting for {peer} {waits_for}: {seconds:.0f} s")


def _key(name: str, rank: int) -> str:
    return f"distlaunch/{name}/{rank}"


def _check_alive(peer: str, address: str) -> None:
    """Raise UnavailableError if no process listens at a task's address any more."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
        except ConnectionRefusedError:
            raise tf.errors.UnavailableError(None, None, f"{peer} has ended") from None
