"""Vertex AI's own messages: what a request may say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def preload() -> None:
    """Import what `check` needs, so that a thread can do so while another is busy."""
    raise NotImplementedError


def check(collection: str, request: Mapping[str, Any]) -> None:
    """Parse a request into Google's own message.

    Parameters
    ----------
    collection
        ``customJobs`` or ``hyperparameterTuningJobs``.
    request
        The body of the call that makes the job.

    Raises
    ------
    JobFileError
        With every problem, each with its path, as
        ``jobSpec.workerPoolSpecs[0].machineSpec.foo: unknown field; did you mean …``.
    """
    raise NotImplementedError
