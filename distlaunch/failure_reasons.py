"""Why a job failed, in plain words, from the lines of its tasks and the error of its platform."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from distlaunch.refusals import LOGIN, find_remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_LINES = 20  # of the task that failed first
_MAX_LINE = 400  # characters of a line that are quoted
_CORRECT_ARGS = (
    "correct args in distlaunch.yaml or after '--'; 'distlaunch check' verifies the trainer's"
)
_FOOTER = "To find out more about why your job exited"  # Vertex AI's link to the log


class Cause(NamedTuple):
    """The reason of a failure, and what to do next."""

    reason: str
    remedy: str


TIMED_OUT = Cause(
    "the job ran longer than its timeout",
    "submit with a longer scheduling.timeout and --job-dir of this job: it resumes there",
)
IDLE = Cause(
    "the GPUs were idle (stop_if)",
    "find out what the steps wait for, then run it again with --job-dir of this job: it resumes",
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
    log: str | None = None  # the file of its output, of a run on this machine

    @classmethod
    def of(
        cls, task: str | None, cause: Cause | None, lines: Sequence[str], log: str | None = None
    ) -> FailureReport:
        """Return the report of a task with a cause: without a known one, its last error line."""
        error = next(filter(None, map(_PROGRAM_ERROR.match, reversed(lines))), None)
        cause = cause or (Cause(error[1][:_MAX_LINE], "") if error else None)
        kept = tuple(line for line in lines if line.strip())[-KEPT_LINES:]
        return cls(task, cause and cause.reason, (cause and cause.remedy) or None, kept, log)

    def text(self, *, with_lines: bool, with_task: bool = True) -> str:
        """Return it as a block of lines, empty if nothing is known."""
        quoted = [f"the last lines of {self.task}:", *self.lines]
        rows = [
            f"{self.task} failed first" if with_task and self.task else "",
            f"reason: {self.reason}" if self.reason else "",
            f"next: {self.remedy}" if self.remedy else "",
            *(quoted if with_lines and self.lines else ()),
            f"full log: {self.log}" if with_task and self.log else "",
        ]
        return "\n".join(filter(None, rows))


# What a program, such as the trainer, reports of itself.
_PROGRAM_ERROR = re.compile(r"\S+: error: (\S.*)")
# A line with which a program ends that fails. With a number, such as "Error: 0.25", it is a result.
ERROR_LINE = re.compile(
    r"^\S*\berror: |\b\w*(Error|Exception)\b(: (?!-?[\d.]+(e-?\d+)?$)|$)"
    r"|stopped by a signal|lost its peers"
)


class _Known(NamedTuple):
    """A cause: the pattern of its texts, and what is printed with the group ``name``, if any."""

    pattern: str
    reason: str
    remedy: str


STOCKOUT = (
    r"resources are insufficient in region|resource_pool_exhausted"
    r"|does not have enough resources available|instance is currently unavailable in the"
)
"""What Vertex AI writes of a region without machines for a job."""

# The last line that matches decides, and the first pattern that it matches. The page on
# troubleshooting has each, as a test verifies. The texts are those of the programs named in the
# comments.
KNOWN_CAUSES = (
    # Vertex AI: jobs of which the region has no machines
    _Known(
        STOCKOUT,
        "the region has no machines of this type now",
        "try another region (scheduling.regions), another machine type, or later",
    ),
    # Vertex AI: custom_model_training_* quotas; googleapis.com: RESOURCE_EXHAUSTED
    _Known(
        r"quota metrics? exceed|quota '?[\w.]+'? exceeded|the quota is exceeded",
        "a quota is exceeded",
        "request more of it in the Cloud console, or use fewer or other machines",
    ),
    # Docker, containerd, Artifact Registry
    _Known(
        r"manifest unknown|failed to pull image|errimagepull|pull access denied"
        r"|(container|docker) image.{0,200}(not found|not exist)|downloadartifacts",
        "the image cannot be pulled: it does not exist, or the service agent may not read it",
        "run 'distlaunch check': it verifies the image and who may pull it",
    ),
    # Docker, the shells
    _Known(
        r"exec: \"(?P<name>[^\"]+)\": (executable file not found|stat \S+ no such file)"
        r"|: (?P<other>[\w./+-]+): command not found$|\w: \d+: (?P<last>[\w./+-]+): not found$",
        "the image has no such command{name}",
        "correct the command, or add its package to requirements.txt or to your Dockerfile",
    ),
    # containerd, with Vertex AI's termination reason
    _Known(
        r"termination reason: starterror|failed to create containerd task",
        "the image has no such command, or it cannot be run",
        "try it here with 'distlaunch local --docker'",
    ),
    # PyTorch, its data loaders
    _Known(
        r"out of shared memory|torch_\w+.{0,40}no space left on device",
        "the container's shared memory (/dev/shm) is full",
        "use num_workers=0, or torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    # TensorFlow: ResourceExhaustedError of an allocator; the CUDA driver, XLA, PyTorch
    _Known(
        r"cuda_error_out_of_memory|out of memory on \S*gpu|(cuda|xla).{0,200}out of memory"
        r"|oom when allocating tensor.{0,400}device:gpu|out of memory in memory space hbm",
        "the memory of a GPU is full",
        "use a smaller --batch-size, or a machine with larger GPUs",
    ),
    # Vertex AI, Docker (exit code 137), Linux (SIGKILL), the trainer, TensorFlow on CPUs
    _Known(
        r"(out[ -]of|replicas low on)[ -]memory|memoryerror|cannot allocate memory"
        r"|std::bad_alloc|oom when allocating tensor",
        "the task ran out of memory",
        "use a smaller --batch-size, no --cache memory, or a machine with more memory",
    ),
    # Compute Engine: Spot machines and maintenance
    _Known(r"\bpreempted\b", *PREEMPTED),
    # Vertex AI, after three attempts
    _Known(
        r"internal error occurred for the current attempt",
        "Vertex AI had an internal error, also when it retried the job",
        "submit again with --job-dir of this job, later or in another region",
    ),
    # the trainer: --check-numerics
    _Known(
        r"\b(nan|infinity or nan|-?inf(inity)?)\b.{0,80}in the output of",
        "an operation gave NaN or infinite numbers",
        "correct its line of code, or NaN and infinite numbers in the data that it gets",
    ),
    _Known(
        r"(has|given) nan or infinite numbers",
        "the data have missing or infinite numbers",
        "fill them in, or leave their rows out",
    ),
    # the trainer: the loss; Keras: TerminateOnNaN
    _Known(
        r"\b(nan|infinity or nan|-?inf(inity)?)\b.{0,80}(loss|gradient)"
        r"|the loss is not finite|\bloss(es)?\b.{0,20}\bnan\b|invalid loss",
        "the loss became NaN or infinite",
        "look for NaN in the data, or lower the learning rate; --check-numerics names the cause",
    ),
    # Python, of TensorFlow 1
    _Known(
        r"no module named '?tensorflow\.(contrib|estimator)",
        "the program is of TensorFlow 1",
        "port its training to a Keras model and fit()",
    ),
    # Python
    _Known(
        r"(error|python[\d.]*): no module named '?(?P<name>[\w.]+)"
        r"|importerror: missing optional dependency '(?P<other>[\w.-]+)",
        "a Python module cannot be imported{name}",
        "add its package to requirements.txt, or its file to the module's package",
    ),
    _Known(
        r"(?P<name>numpy\.dtype size changed|multiarray failed to import|against a[bp]i version"
        r"|a module that was compiled using numpy [\d.]*\w)"
        r"|importerror: (?P<other>cannot import name \S+ from [\w.']+"
        r"( \((\S*-packages\S*|unknown location)\))?\s*$)",
        "the versions of two packages do not fit{name}",
        "pin versions that fit together (numpy<2 for a package built for NumPy 1), such as those "
        "of 'pip freeze' where the program runs",
    ),
    # the dynamic linker, by Python or a program
    _Known(
        r"(import|os)error: (?P<name>lib\S+\.so\S*): cannot open shared object file"
        r"|version `(?P<other>(glibc|glibcxx|cxxabi)_[\d.]+)' not found",
        "the image does not have a library of the system that a package needs{name}",
        "install it with apt-get in a Dockerfile of your own, or take a newer base image (OpenCV: "
        "opencv-python-headless, CUDA: tensorflow[and-cuda])",
    ),
    # Linux, of a container's command
    _Known(
        r"(exec (?P<name>\S+): )?exec format error",
        "the image is for another platform than linux/amd64, or a script has no #! line{name}",
        "build the image with 'docker build --platform linux/amd64'",
    ),
    _Known(
        r"exec (?P<name>/\S+|user process caused): \W?no such file or directory"
        r"|\\r\W*: (command not found|no such file)|\^m: bad interpreter",
        "the lines of a script end with CR LF, or the image does not have its #! program{name}",
        "convert it to LF, such as with dos2unix, or correct its #! line",
    ),
    # argparse, absl, click, fire
    _Known(
        r"error: (?P<name>unrecognized arguments: .*|argument .*"
        r"|the following arguments are required: .*)|(?P<other>unknown command line flag '\w+'"
        r"|flags? parsing error: .+|no such option: \S+|could not consume arg: \S+)",
        "the program does not take its arguments{name}",
        _CORRECT_ARGS,
    ),
    # Google's APIs and client libraries
    _Known(
        r"exceptions\.(defaultcredentials|refresh)error: (?P<name>.*?)\.?( to set up|$)",
        "the program has no valid credentials for Google Cloud{name}",
        "use service_account in distlaunch.yaml, and no GOOGLE_APPLICATION_CREDENTIALS under env; "
        f"for runs on this machine run '{LOGIN}'",
    ),
    _Known(
        r"^.*permission '?(?P<name>[a-z]+\.[a-z]+\.[a-z]+)'? denied"
        r"|^.*?(?P<other>[^\s\"']{1,99} does not have [a-z]+\.[a-z]+\.[a-z]+) (access|permission)"
        r"|permission_?denied|exceptions\.forbidden: 403|http response code 403",
        "a permission is missing{name}",
        "grant a role with it to the job's service account ('distlaunch check' names the account)",
    ),
    _Known(
        r"http response code 404(.*(?P<name>gs://\S*\w|the specified bucket does not exist))?"
        r"|(?P<other>the specified bucket does not exist|gs://\S+ (was not found|does not exist)"
        r"|no such object: \S+|not found: (table|dataset) \S+)",
        "a bucket, file or table does not exist{name}",
        "correct its name, or create it before the job",
    ),
    # Python
    _Known(
        r"(?P<name>permissionerror: .*|exec /\S+: permission denied)",
        "the program may not use a file{name}",
        "write to the job folder or /tmp (in /gcs/ the job's account needs a role on the bucket), "
        "and make a script executable with 'chmod +x'",
    ),
    _Known(
        r"segmentation fault|sigsegv",
        "the program crashed (segmentation fault)",
        "set PYTHONFAULTHANDLER=1 under env, so that the log has the lines of Python",
    ),
    # W&B
    _Known(
        r"api[_ ]key not configured|no api key configured",
        "W&B has no API key",
        "set WANDB_API_KEY, or WANDB_MODE=offline, under env",
    ),
    # Linux, by its error ENOSPC; Vertex AI
    _Known(
        r"no space left on device|replicas low on disk",
        "a disk is full",
        "free space where the job writes, or write less; on Vertex AI use a larger boot disk",
    ),
    # TensorFlow: DataLossError; the trainer: DataError, StorageError
    _Known(
        r"dataloss|corrupted record|cannot be parsed|cannot be read|no files? match"
        r"|reading the data|cannot (read|list) the data|truncated record",
        "the data cannot be read",
        "see the file and record in the lines; write it again, or leave it out",
    ),
    # Python's FileNotFoundError and TensorFlow's NotFoundError
    _Known(
        r"(filenotfounderror|notfounderror|trainer: error|python[\d.]*): "
        r"(?P<name>.*no such file or directory.*)",
        "a file is missing{name}",
        "correct its path, or write it where every task can read it, such as gs://",
    ),
    # the trainer: peer_watchdog.py; TensorFlow: UnavailableError
    _Known(
        r"did not come within \d+ s|has waited \d+ s for",
        "the cluster did not form: a task did not come",
        "see the log of the missing task with --task; check machines and network",
    ),
    # the trainer: stopping.py
    _Known(r"stopped: gpu use below .+ \(stop_if\)", *IDLE),
    # the trainer: step_watchdog.py
    _Known(
        r"no step has ended for",
        "a step did not end",
        "see the stacks in the log; --step-timeout sets the limit",
    ),
    # Vertex AI: scheduling.timeout
    _Known(r"scheduling\.timeout|ran longer than its|exceeded .{0,30}timeout", *TIMED_OUT),
)
# TensorFlow's errors of Cloud Storage, with a body of several lines before the file.
_HTTP_ERROR = re.compile(r"(?s)HTTP response code \d+ with body .{0,4000}?\swhen [a-z ]+ gs://\S+")
# What a task prints that ends because another one did: never the first failure.
VICTIM = re.compile(
    r"lost its peers|unavailableerror|connection reset by peer|socket closed|"
    r"collective ops is aborted|stopped by a signal",
    re.IGNORECASE,
)


def _known_cause(line: str) -> Cause | None:
    if remedy := find_remedy(line, in_job=True):
        return Cause(line.strip()[:_MAX_LINE], remedy.text)
    for pattern, reason, next_step in KNOWN_CAUSES:
        if match := re.search(pattern, line, re.IGNORECASE):
            name = next(filter(None, match.groupdict().values()), "")
            return Cause(reason.replace("{name}", f": {name.strip()}" if name else ""), next_step)
    return None


def explain(text: str, *, exit_code: int | None = None) -> Cause | None:
    """Return the cause of a failure from an error or a task's last lines, None if it is not known.

    Parameters
    ----------
    exit_code
        As a shell gives it, where it is known: it decides if the text has no known cause.
    """
    text = _HTTP_ERROR.sub(lambda error: " ".join(error[0].split()), text.partition(_FOOTER)[0])
    for line in reversed(text.splitlines()):
        if cause := _known_cause(line):
            return cause
    if exit_code == 139:
        return _known_cause("segmentation fault")
    if exit_code == 137:
        return Cause(
            "it was killed (SIGKILL), by the system if the memory was full",
            "use a smaller --batch-size, no --cache memory, or more memory",
        )
    return Cause("the program was called wrongly", _CORRECT_ARGS) if exit_code == 2 else None
