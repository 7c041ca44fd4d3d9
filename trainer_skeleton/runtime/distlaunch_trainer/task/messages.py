"""What a task prints: lines, or JSON objects with a severity where Cloud Logging reads them.

A line with one JSON object becomes an entry with its ``severity`` and ``message``; any other line
is INFO on stdout and ERROR on stderr
(https://cloud.google.com/vertex-ai/docs/training/code-requirements).
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal

_STEP = re.compile(r"\bstep (\d+)\b")

Severity = Literal["INFO", "WARNING", "ERROR"]


def is_json() -> bool:
    """Return whether lines are JSON: in a job in the cloud, or by DISTLAUNCH_LOG_FORMAT=json."""
    chosen = os.environ.get("DISTLAUNCH_LOG_FORMAT")
    in_cloud = "CLOUD_ML_JOB_ID" in os.environ and "DISTLAUNCH_EVENTS" not in os.environ
    return chosen == "json" if chosen else in_cloud


def info(text: str, *, step: int | None = None) -> None:
    """Print a line on stdout."""
    _print("INFO", text, step)


def warning(text: str) -> None:
    """Print a warning on stderr."""
    _print("WARNING", f"trainer: warning: {text}")


def error(text: str, *, trace: str = "") -> None:
    """Print an error on stderr, in one entry with a traceback if there is one.

    Its step is the one that the text names.
    """
    step = _STEP.search(text)
    lines = f"{trace}trainer: error: {text}"
    _print("ERROR", lines, int(step[1]) if step else None)


def notice(text: str) -> None:
    """Print a line of the trainer that is no result on stderr."""
    _print("INFO", text, is_result=False)


def figures(values: Mapping[str, Any]) -> None:
    """Print figures as an entry of their own, where no launcher reads them as an event."""
    if is_json() and "DISTLAUNCH_EVENTS" not in os.environ:
        print(_object("INFO", "figures", figures=values), flush=True)


def capture_logging() -> None:
    """Print what Python's logging and warnings report, TensorFlow's included, as JSON."""
    if is_json():
        logging.captureWarnings(capture=True)
        logging.getLogger().addHandler(_JsonHandler())


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 replica``, ``2 replicas``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


class _JsonHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        name = record.levelname if record.levelno >= logging.INFO else "DEBUG"
        print(_object(name, self.format(record)), file=sys.stderr, flush=True)


def _print(
    severity: Severity, text: str, step: int | None = None, *, is_result: bool = True
) -> None:
    stream = sys.stdout if severity == "INFO" and is_result else sys.stderr
    facts = {} if step is None else {"step": step}
    print(_object(severity, text, **facts) if is_json() else text, file=stream, flush=True)


def _object(severity: str, text: str, **facts: Any) -> str:
    return json.dumps({"severity": severity, "message": text, "task": _task(), **facts})


def _task() -> str:
    """Return the name of this task, such as worker:0."""
    try:
        task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task") or {}
    except ValueError:
        return ""
    kind, index = task.get("type", "chief"), task.get("index", 0)
    return str(kind) if kind == "chief" else f"{kind}:{index}"
