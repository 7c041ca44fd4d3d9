"""What can go wrong in a training run, reported in one line."""

from __future__ import annotations

import re

# Colours, the names of TensorFlow's nodes and operations, all labels of a batch.
_NOISE = re.compile(r"\x1b\[[0-9;]*m|\{\{[^}\n]*\}\} ?|\s*\[Op:\w+\].*|\s*Label values: .*")

# What TensorFlow writes before the reason why a compiled function failed: each operation with the
# stack that created it, and a prefix on the line of the reason.
_BEFORE_REASON = re.compile(
    r"^Graph execution error:$"
    r"|^Detected at node .*\n(?:<stack traces unavailable>\n|[ \t].*\n|\n)*"
    r"|^\d+ root error\(s\) found\.$"
    r"|^ *\(\d+\) [A-Z_]+: "
    r"|Error in user-defined function passed to \S+ transformation with iterator: \S+: ",
    re.MULTILINE,
)

# What Keras adds of the arguments of a layer's call.
_OF_ARGUMENTS = ("•", "Arguments received by")


class TrainerError(Exception):
    """The run cannot go on; the message is one line with the place and the remedy."""


class ClusterError(TrainerError):
    """The tasks do not form a cluster."""


class DeviceError(ClusterError):
    """The tasks do not have the GPUs that they should; several may find this at once."""


class PlanError(TrainerError):
    """These examples, this batch and these workers do not go together."""


class DataError(TrainerError):
    """A file or a record cannot be used."""


class ModelError(TrainerError):
    """The model cannot be trained as it is."""


class StorageError(TrainerError):
    """A file or folder cannot be written or read."""


class TrainingStopped(TrainerError):
    """The run received a stop signal and has saved a checkpoint."""


class IdleStopped(TrainingStopped):
    """The run has saved a checkpoint, and stopped because its GPUs were idle."""


def summarize(error: BaseException) -> str:
    """Return the one line of Keras's and TensorFlow's many that has the cause."""
    text = str(getattr(error, "message", None) or error)
    text = _NOISE.sub("", _BEFORE_REASON.sub("", text))
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_OF_ARGUMENTS)]
    if not lines:
        return type(error).__name__
    if lines[0] == "in user code:":
        lines = lines[-1:]
    elif lines[0].startswith("Exception encountered when calling"):
        lines = lines[1:] or lines
    return lines[0].removeprefix(f"{type(error).__name__}: ")[:300]
