"""What Slurm's commands print, and how they fail."""

from __future__ import annotations

import pytest

from distlaunch.engines.api import JobState
from distlaunch.engines.slurm import commands
from distlaunch.errors import SlurmError, SlurmUnreachable


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Put a program in place of one of Slurm's commands."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return write


def test_the_queue_is_read_with_any_comment(command):
    command("squeue", "printf '%s\\n' '12|RUNNING|None|1795732075|1795732076|N/A|digits-1|x' ''")
    (job,) = commands.read_queue()
    assert (job.id, job.state, job.reason) == ("12", JobState.RUNNING, "")
    assert job.comment == "digits-1|x"
    assert (job.submitted, job.ended) == ("2026-11-26T22:27:55.000000Z", None)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CONFIGURING", "PENDING"),
        ("COMPLETING", "RUNNING"),
        ("REQUEUE_HOLD", "PENDING"),
        ("SUSPENDED", "PAUSED"),
        ("COMPLETED", "SUCCEEDED"),
        ("CANCELLED", "CANCELLED"),
        ("TIMEOUT", "FAILED"),
        ("A_WORD_OF_A_LATER_VERSION", "FAILED"),
    ],
)
def test_states(word, state):
    job = commands.QueuedJob("1", word, "", None, None, None, "")
    assert str(job.state) == state


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("infinite", None), ("5:00", 300), ("1:00:00", 3600), ("2-00:00:30", 172_830), ("n/a", None)],
)
def test_limits(text, seconds):
    assert commands.parse_limit(text) == seconds


def test_partitions_have_the_gpus_of_their_nodes(command):
    lines = "gpu|up|1-00:00:00|gpu:a100:4(S:0-1),gpu:t4:2\\ncpu|down|infinite|(null)"
    command("sinfo", f"printf '%b\\n' '{lines}'")
    assert commands.read_partitions() == [
        commands.Partition("gpu", True, 86_400, 6),
        commands.Partition("cpu", False, None, 0),
    ]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Unable to contact slurm controller (connect failure)", SlurmUnreachable),
        ("Batch job submission failed: Socket timed out on send/recv operation", SlurmUnreachable),
        ("Batch job submission failed: Invalid account", SlurmError),
    ],
)
def test_refusals_and_outages_differ(command, words, kind):
    command("scancel", f"echo 'scancel: error: {words}' >&2; exit 1")
    with pytest.raises(SlurmError) as caught:
        commands.cancel_job("1")
    assert type(caught.value) is kind
    assert str(caught.value) == f"scancel: {words}"


def test_a_machine_without_slurm_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="sinfo: no such command here; run distlaunch on a login"):
        commands.read_partitions()
