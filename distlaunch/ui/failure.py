"""Why a job failed, in plain words, from the lines of its tasks and the error of its platform."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_LINES = 10  # of the task that failed first
_FOOTER = "To find out more about why your job exited"  # Vertex AI's link to the log


class Cause(NamedTuple):
    """The reason of a failure, and what to do next."""

    reason: str
    remedy: str


TIMED_OUT = Cause(
    "the job ran longer than its timeout",
    "submit with a longer scheduling.timeout and --job-dir of this job: it resumes there",
)
PREEMPTED = Cause(
    "the machine was preempted",
    "submit again with --job-dir of this job: it resumes from its last checkpoint",
)


@dataclass(frozen=True, slots=True)
class FailureReport:
    """The first failure of a job; the fields are those of the event ``failure``."""

    task: str | None  # None if no task is known to have failed
    reason: str | None  # None if it is not known
    remedy: str | None
    lines: tuple[str, ...] = ()  # the task's last

    @classmethod
    def of(cls, task: str | None, cause: Cause | None, lines: Sequence[str]) -> FailureReport:
        """Return the report of a task with a cause, if that is known."""
        kept = tuple(line for line in lines if line.strip())[-KEPT_LINES:]
        return cls(task, cause and cause.reason, cause and cause.remedy, kept)

    def text(self, *, with_lines: bool) -> str:
        """Return it as a block of lines, empty if nothing is known."""
        failed = f"{self.task} failed first" if with_lines and self.task else ""
        quoted = [f"the last lines of {self.task}:", *self.lines]
        rows = [
            failed,
            f"reason: {self.reason}" if self.reason else "",
            f"next: {self.remedy}" if self.remedy else "",
            *(quoted if with_lines and self.lines else ()),
        ]
        return "\n".join(filter(None, rows))


# The last line that matches decides, and the first pattern that it matches. The texts are those of
# the programs named in the comments.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    # Vertex AI: jobs of which the region has no machines
    (
        (
            r"resources are insufficient in region|resource_pool_exhausted"
            r"|does not have enough resources available"
        ),
        "the region has no machines of this type now",
        "try another region (scheduling.regions), another machine type, or later",
    ),
    # Vertex AI: custom_model_training_* quotas; googleapis.com: RESOURCE_EXHAUSTED
    (
        r"quota metrics? exceed|quota '?[\w.]+'? exceeded|the quota is exceeded",
        "a quota is exceeded",
        "request more of it in the Cloud console, or use fewer or other machines",
    ),
    # Docker, containerd, Artifact Registry
    (
        (
            r"manifest unknown|failed to pull image|errimagepull|pull access denied"
            r"|(container|docker) image.{0,200}(not found|not exist)|downloadartifacts"
        ),
        "the image cannot be pulled: it does not exist, or the service agent may not read it",
        "run 'distlaunch check': it verifies the image and who may pull it",
    ),
    # containerd, with Vertex AI's termination reason
    (
        r"termination reason: starterror|failed to create containerd task",
        "the image has no such command, or it cannot be run",
        "try it here with 'distlaunch local --docker'",
    ),
    # TensorFlow: ResourceExhaustedError of an allocator; the CUDA driver
    (
        (
            r"out of memory on gpu|out of memory on /device:gpu|cuda_error_out_of_memory"
            r"|oom when allocating tensor.{0,400}device:gpu|out of memory on \S*gpu"
        ),
        "the memory of a GPU is full",
        "use a smaller --batch-size, or a machine with larger GPUs",
    ),
    # Vertex AI, Docker (exit code 137), Linux (SIGKILL), the trainer, TensorFlow on CPUs
    (
        (
            r"(out[ -]of|replicas low on)[ -]memory|memoryerror|cannot allocate memory"
            r"|std::bad_alloc|oom when allocating tensor"
        ),
        "the task ran out of memory",
        "use a smaller --batch-size, no --cache memory, or a machine with more memory",
    ),
    # Compute Engine: Spot machines and maintenance
    (
        r"\bpreempted\b",
        *PREEMPTED,
    ),
    # Vertex AI, after three attempts
    (
        r"internal error occurred for the current attempt",
        "Vertex AI had an internal error, also when it retried the job",
        "submit again with --job-dir of this job, later or in another region",
    ),
    # the trainer: loss, --check-numerics; Keras: TerminateOnNaN
    (
        (
            r"\b(nan|infinity or nan|-?inf(inity)?)\b.{0,80}(in the output of|loss|gradient)"
            r"|the loss is not finite|\bloss(es)?\b.{0,20}\bnan\b|invalid loss"
        ),
        "the loss or a tensor became NaN or infinite",
        "lower the learning rate; --check-numerics names the operation",
    ),
    # Python, of TensorFlow 1
    (
        r"no module named '?tensorflow\.(contrib|estimator)",
        "the program is of TensorFlow 1",
        "port its training to a Keras model and fit()",
    ),
    # Python
    (
        r"modulenotfounderror: no module named '?(?P<name>[\w.]+)|importerror: ",
        "a Python module cannot be imported{name}",
        "add its package to requirements.txt, or its file to the module's package",
    ),
    # argparse
    (
        (
            r"error: (?P<name>unrecognized arguments: [^\n]*|argument [^\n]*"
            r"|the following arguments are required: [^\n]*)"
        ),
        "the program does not take its arguments{name}",
        "correct args in distlaunch.yaml or after '--'; 'distlaunch check' verifies them",
    ),
    # Google's APIs and client libraries
    (
        (
            r"permission '?(?P<name>[a-z]+\.[a-z]+\.[a-z]+)'? denied"
            r"|(?P<other>\S+ does not have [a-z]+\.[a-z]+\.[a-z]+) access"
            r"|permission_?denied|\b403\b.{0,40}forbidden"
        ),
        "a permission is missing{name}",
        "grant a role with it to the job's service account ('distlaunch check' names the account)",
    ),
    # Linux, by its error ENOSPC; Vertex AI
    (
        r"no space left on device|replicas low on disk",
        "a disk is full",
        "use a larger boot disk in distlaunch.yaml, or write less",
    ),
    # TensorFlow: DataLossError; the trainer: DataError
    (
        (
            r"dataloss|corrupted record|cannot be parsed|cannot be read|no files? match"
            r"|reading the data|truncated record"
        ),
        "the data cannot be read",
        "see the file and record in the lines; 'distlaunch local' on the same data shows it here",
    ),
    # Python's FileNotFoundError and TensorFlow's NotFoundError
    (
        (
            r"(filenotfounderror|notfounderror|trainer: error): "
            r"(?P<name>.*no such file or directory.*)"
        ),
        "a file is missing{name}",
        "correct its path, or write it where every task can read it, such as gs://",
    ),
    # the trainer: peer_watchdog.py; TensorFlow: UnavailableError
    (
        r"did not come within \d+ s|has waited \d+ s for",
        "the cluster did not form: a task did not come",
        "see the log of the missing task with --task; check machines and network",
    ),
    # the trainer: step_watchdog.py
    (
        r"no step has ended for",
        "a step did not end",
        "see the stacks in the log; --step-timeout sets the limit",
    ),
    # Vertex AI: scheduling.timeout
    (r"scheduling\.timeout|ran longer than its|exceeded .{0,30}timeout", *TIMED_OUT),
)
_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), reason, remedy) for pattern, reason, remedy in _CAUSES
)
# What a task prints that ends because another one did: never the first failure.
VICTIM = re.compile(
    r"lost its peers|unavailableerror|connection reset by peer|socket closed|"
    r"collective ops is aborted|stopped by a signal",
    re.IGNORECASE,
)


def explain(text: str, *, exit_code: int | None = None) -> Cause | None:
    """Return the cause of a failure from a text: an error, or a task's last lines.

    Parameters
    ----------
    exit_code
        As a shell gives it, where it is known: it decides if the text has no known cause.

    Returns
    -------
        None if the cause is not known.
    """
    lines = text.partition(_FOOTER)[0].splitlines()
    for line, (pattern, reason, remedy) in product(reversed(lines), _PATTERNS):
        match = pattern.search(line)
        if match:
            groups = match.groupdict()
            name = next((groups[key] for key in ("name", "other") if groups.get(key)), "")
            return Cause(reason.replace("{name}", f": {name.strip()}" if name else ""), remedy)
    if exit_code == 137:
        return Cause(
            "it was killed (SIGKILL), by the system if the memory was full",
            "use a smaller --batch-size, no --cache memory, or more memory",
        )
    if exit_code == 2:
        return Cause(
            "the program was called wrongly",
            "correct args in distlaunch.yaml or after '--'; 'distlaunch check' verifies them",
        )
    return None
