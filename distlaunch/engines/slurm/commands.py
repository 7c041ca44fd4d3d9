"""Slurm's commands, run on this machine: sbatch, squeue, scancel and sinfo.

Their options and formats are the same in all versions, other than Slurm's REST API.
"""

from __future__ import annotations

import getpass
import os
import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from distlaunch import timestamps
from distlaunch.engines.api import JobState
from distlaunch.errors import SlurmError, SlurmUnreachable, os_reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TIMEOUT = 120.0  # seconds; the commands themselves retry for some
_UNREACHABLE = re.compile(
    r"unable to contact slurm controller|socket timed out|connection refused|zero bytes were trans"
    r"|transport endpoint|connection timed out|unable to connect|temporarily unable to accept"
    r"|send/recv operation",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^(sbatch|squeue|scancel|sinfo|scontrol): (error: )?", re.MULTILINE)
# The comment is last, because it may have any character.
_QUEUE_FORMAT = "%i|%T|%r|%V|%S|%e|%k"
_PARTITION_FIELDS = 3  # separators in a line
_LIMIT = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")
_GPUS = re.compile(r"\bgpu(?::[\w.-]+?)?:(\d+)")
_FIELDS = _QUEUE_FORMAT.count("|")
# https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES
_STATES = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "RESV_DEL_HOLD"), JobState.PENDING),
    **dict.fromkeys(("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"), JobState.PENDING),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT"), JobState.RUNNING),
    **dict.fromkeys(("SUSPENDED", "STOPPED"), JobState.PAUSED),
    "RESIZING": JobState.UPDATING,
    "COMPLETED": JobState.SUCCEEDED,
    "CANCELLED": JobState.CANCELLED,
}


class QueuedJob(NamedTuple):
    """A job that Slurm knows; it forgets one some minutes after its end (MinJobAge)."""

    id: str
    word: str  # Slurm's state, such as NODE_FAIL
    reason: str  # why it waits, such as Resources
    submitted: str | None
    started: str | None
    ended: str | None
    comment: str

    @property
    def state(self) -> JobState:
        """The state in the words of all engines."""
        return _STATES.get(self.word, JobState.FAILED)


def read_queue(user: str | None = None) -> list[QueuedJob]:
    """Return the jobs of a user, by default of this one, in the order of their numbers."""
    words = ("--noheader", "--states=all", f"--format={_QUEUE_FORMAT}")
    who = f"--user={user or getpass.getuser()}"
    output = run("squeue", *words, who, env={"SLURM_TIME_FORMAT": "%s"})
    jobs = [_parse_job(line) for line in output.splitlines() if line.count("|") >= _FIELDS]
    return sorted(jobs, key=lambda job: int(job.id) if job.id.isdecimal() else 0)


def _parse_job(line: str) -> QueuedJob:
    number, word, reason, submitted, started, ended, comment = line.split("|", _FIELDS)
    return QueuedJob(
        number,
        word,
        "" if reason == "None" else reason,
        _time(submitted),
        _time(started),
        _time(ended),
        comment.strip(),
    )


def _time(text: str) -> str | None:
    """Return the timestamp of seconds since 1970; None for N/A, NONE and others."""
    return timestamps.format(float(text)) if text.isdecimal() else None


def submit_batch(script: Path, launch_id: str, lock: int) -> str:
    """Submit a batch script, and return the number of the job.

    sbatch inherits the file descriptor `lock`: where this process is killed, the lock is held until
    sbatch has ended.
    """
    # The options win over variables such as SBATCH_EXPORT, by which a site sets defaults.
    options = ("--parsable", f"--comment={launch_id}", "--export=ALL")
    output = run("sbatch", *options, str(script), inherited=(lock,))
    lines = output.split()
    if not lines:
        raise SlurmUnreachable("sbatch did not print the number of the job")
    return lines[-1].partition(";")[0]  # a cluster's name may follow


class Partition(NamedTuple):
    """The nodes of one kind of a partition."""

    name: str
    is_up: bool
    limit: int | None  # of a job's time in seconds, None for no limit
    gpus: int  # of each node


def read_partitions() -> list[Partition]:
    """Return the partitions of the cluster, each once per kind of its nodes."""
    lines = run("sinfo", "--noheader", "--format=%R|%a|%l|%G").splitlines()
    fields = (line.split("|", 3) for line in lines if line.count("|") >= _PARTITION_FIELDS)
    return [
        Partition(name, available == "up", parse_limit(limit), _gpus(gres))
        for name, available, limit, gres in fields
    ]


def parse_limit(text: str) -> int | None:
    """Return the seconds of Slurm's [[DAYS-]HOURS:]MINUTES:SECONDS; None for any other text."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _gpus(gres: str) -> int:
    """Return the number of GPUs of Slurm's generic resources, such as ``gpu:a100:4(S:0-1)``."""
    return sum(int(count) for count in _GPUS.findall(gres))


def judge_batch(script: str) -> str:
    """Return when and where Slurm would start a batch script; SlurmError is raised if it would not.

    Nothing is submitted.
    """
    return run("sbatch", "--test-only", stdin=script, is_on_stderr=True)


def cancel_job(number: str) -> None:
    """Cancel a job: its tasks get SIGTERM, and after the cluster's KillWait SIGKILL."""
    run("scancel", number)


def run(
    *words: str,
    inherited: Sequence[int] = (),
    stdin: str = "",
    is_on_stderr: bool = False,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a command and return its stdout, or what it printed on stderr.

    Raises
    ------
    SlurmUnreachable
        If the controller does not respond.
    SlurmError
        If the command is missing or refused.
    """
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_TIMEOUT,
            input=stdin,
            pass_fds=inherited,
            env={**os.environ, **(env or {})},
        )
    except FileNotFoundError:
        raise SlurmError(
            f"{words[0]}: no such command here",
            remedy="run distlaunch on a login node of the Slurm cluster",
        ) from None
    except OSError as problem:
        raise SlurmError(f"{words[0]}: cannot be run ({os_reason(problem)})") from None
    except subprocess.TimeoutExpired:
        raise SlurmUnreachable(f"{words[0]}: no response within {_TIMEOUT:.0f} s") from None
    messages = " ".join(_PREFIX.sub("", done.stderr).split())
    if done.returncode == 0:
        return messages if is_on_stderr else done.stdout
    text = messages or f"exit code {done.returncode}"
    kind = SlurmUnreachable if _UNREACHABLE.search(text) else SlurmError
    raise kind(f"{words[0]}: {text}")
