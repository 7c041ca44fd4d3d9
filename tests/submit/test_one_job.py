"""At any moment at most one job of a launch is alive, whatever goes wrong."""

from __future__ import annotations

import json
import os
import random
import subprocess

import emulators
import pytest
from launches import REGIONS, jobs_of, start_submit

LAWS = bool(os.environ.get("DISTLAUNCH_TEST_LAWS"))  # make laws
PLACES = ("stockout:us-central1", "no-start:us-central1", "stockout:us-east4", "no-start:us-east4")
CALL_FAULTS = (
    *("lost@create#1", "lost@create#2", "503@create#1", "denied@create#2", "quota@create#3"),
    *("denied@cancel#1", "lost@cancel#1", "denied@get#4-6", "expired@get#2", "reset:0.2@get"),
    "503:0.3@list",
)
SLOW = "slow-states:0.6"
MOST_COMMANDS = 20  # of one launch
OPEN = {"is_open": True, "is_moving": True}  # fields of a record
PATIENCE = 20  # seconds with a command
LAST_MOMENT = 32  # of a command that is killed; see killed.py

pytestmark = pytest.mark.slow


def test_an_error_while_following_leaves_the_launch_open(project, submit, records):
    with emulators.serving(project, call_faults="denied@get#2-4") as emulator:
        results = [submit(emulator, "--", "600") for _ in range(3)]
        assert [result.returncode for result in results] == [1, 1, 1]
        resumed = submit(emulator, "--detach", "--", "600")
        assert resumed.returncode == 0, resumed.stderr
        emulator.wait("RUNNING")
        assert jobs_of(emulator, "digits") == [("us-central1", "RUNNING")]
    [record] = records(project)
    remedy = (
        f"run the same command again to follow it, or 'distlaunch cancel {record['launch_id']}'"
    )
    for result in results:
        assert f"the job may still be running: {remedy}" in result.stderr
    assert record["is_open"] is False


def test_two_commands_that_follow_one_launch_move_it_once(project):
    faults = "stockout:us-central1,slow-states:1"
    with emulators.serving(project, faults) as emulator:
        words = "--set=scheduling.max_wait=1h"
        commands = [start_submit(project, emulator, words) for _ in range(2)]
        ends = [(command.communicate()[1], command.returncode) for command in commands]
        assert [code for _, code in ends] == [0, 0], ends
        assert jobs_of(emulator, "digits") == [
            ("us-central1", "FAILED"),
            ("us-east4", "SUCCEEDED"),
        ]
    assert sum("moving the job to us-east4" in text for text, _ in ends) == 1


def test_a_job_that_cannot_be_cancelled_is_followed_on_and_the_users_cancel_ends_it(project, cli):
    faults = "no-start:us-central1"
    with emulators.serving(project, faults, "denied@cancel#1") as emulator:
        command = start_submit(project, emulator)
        assert command.stderr
        assert any("the job is not moved, as it cannot be cancelled" in x for x in command.stderr)
        cancelled = cli("cancel", cwd=project, env=emulator.environment)
        assert cancelled.returncode == 0, cancelled.stderr
        assert command.wait() == 3
        command.stderr.close()
        assert jobs_of(emulator, "digits") == [("us-central1", "CANCELLED")]


def test_a_running_job_that_was_to_be_moved_and_that_the_user_cancels_is_not_moved(
    project, submit, cli
):
    with emulators.serving(project) as emulator:
        assert submit(emulator, "--detach", "--", "600").returncode == 0
        [path] = project.glob(".distlaunch/jobs/*.json")
        # What a command leaves that is killed before it cancels the job.
        path.write_text(json.dumps(json.loads(path.read_text()) | OPEN))
        emulator.wait("RUNNING")
        command = start_submit(project, emulator, "--", "600")
        assert command.stderr
        assert any("resuming interrupted launch" in line for line in command.stderr)
        assert cli("cancel", cwd=project, env=emulator.environment).returncode == 0
        assert command.wait() == 3
        command.stderr.close()
        assert jobs_of(emulator, "digits") == [("us-central1", "CANCELLED")]


def wait_or_kill(command):
    """Return a command's exit code; one that follows a job that waits for ever is killed."""
    try:
        command.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        command.kill()
        command.communicate()
    return command.returncode


@pytest.mark.parametrize("seed", range(40 if LAWS else 2))
def test_at_most_one_job_is_alive_whatever_happens(seed, project, submit, python, record_property):
    draw = random.Random(seed)  # noqa: S311 - not a secret
    faults = draw.choice(PLACES)
    drawn = draw.sample([*CALL_FAULTS, SLOW], draw.randint(0, 3))
    if SLOW in drawn:
        drawn.remove(SLOW)
        faults += f",{SLOW}"
    call_faults, kills = ",".join([*drawn, f"seed:{seed}"]), 0
    with emulators.serving(project, faults, call_faults) as emulator:
        for _ in range(MOST_COMMANDS):
            killed = ["killed", str(draw.randrange(LAST_MOMENT))]
            program = killed if draw.random() < 0.6 else ["distlaunch"]
            commands = [start_submit(project, emulator, program=program)]
            if draw.random() < 0.3:
                commands.append(start_submit(project, emulator))
            codes = [wait_or_kill(command) for command in commands]
            kills += sum(code < 0 for code in codes)
            jobs_of(emulator, "digits")
            if codes[0] in (0, 3) and len(codes) == 1:
                break
        jobs = jobs_of(emulator, "digits")
    print(f"{faults},{call_faults}: {kills} kills, {len(jobs)} jobs one after another")
    states = [state for _, state in jobs]
    assert states[-1] == "SUCCEEDED" or [region for region, _ in jobs[-3:]] == list(REGIONS)
    assert set(states[:-1]) <= {"FAILED", "CANCELLED", "SUCCEEDED"}
