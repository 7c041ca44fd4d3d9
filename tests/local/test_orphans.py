"""Nothing is left behind, whatever happens: each task has a grandchild and a daemon that stay."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from distlaunch.local import processes

ALL_PROCESSES = 9  # three tasks with two descendants each

STAY = "leave_stubborn_descendants(); stay('task', stubborn=False)"
STAY_AT_ANY_COST = "leave_stubborn_descendants(); stay('task')"


@pytest.mark.parametrize(
    ("victim", "number", "expected"),
    [
        ("launcher", signal.SIGTERM, 143),
        ("launcher", signal.SIGHUP, 129),
        ("launcher", signal.SIGKILL, -signal.SIGKILL),
        ("host", signal.SIGKILL, 1),
    ],
)
def test_after_a_signal(launch, eventually, victim, number, expected):
    launched = launch(STAY, workers=3)
    launched.until_up(ALL_PROCESSES)
    launcher = psutil.Process(launched.process.pid)
    (launcher if victim == "launcher" else launcher.children()[0]).send_signal(number)
    code, _, err = launched.end()
    assert (code, "Traceback" in err) == (expected, False)
    assert ("the process that holds the tasks ended unexpectedly" in err) == (victim == "host")
    if expected > 0:
        assert launched.left() == []
    eventually(lambda: not launched.left())  # if it was killed itself, the host is still ending


def test_after_ctrl_c_twice_with_tasks_that_ignore_it(launch):
    launched = launch(STAY_AT_ANY_COST, workers=3)
    launched.until_up(ALL_PROCESSES)
    launched.process.send_signal(signal.SIGINT)
    while b"SIGINT" not in launched.process.stderr.readline():
        assert not launched.is_over
    assert len(launched.left()) > ALL_PROCESSES
    launched.process.send_signal(signal.SIGINT)
    code, _, _ = launched.end()
    assert code == 130
    assert launched.left() == []


def test_what_others_start_meanwhile_is_left_alone(tmp_path, write):
    """A script that becomes the launcher leaves it its background jobs as children."""
    program = write(
        """
        Path("started").touch()
        while not Path("stranger").exists():
            time.sleep(0.01)
        """
    )
    script = f"""
        (
            until [ -e started ]; do sleep 0.01; done
            sleep 60 &
            echo $! > strange && mv strange stranger
            wait
        ) &
        exec {sys.executable} -m distlaunch -q local --workers 1 -- python {program}
    """
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, timeout=60, check=False)
    stranger = psutil.Process(int((tmp_path / "stranger").read_text()))
    parent = stranger.parent()
    assert (done.returncode, stranger.name()) == (0, "sleep")
    stranger.kill()
    parent.wait(60)


def test_descendants_are_looked_for_until_none_is_left_three_times(monkeypatch):
    looks = iter([[], [0x7FFFFFFF], [], [], []])
    monkeypatch.setattr(processes, "living_descendants", lambda _: next(looks))
    assert processes.kill_descendants(60)
    assert list(looks) == []


def test_after_a_failure_with_a_restart(launch):
    launched = launch(
        """
        leave_stubborn_descendants()
        is_up(f"task.{RESTARTS}")
        if TASK == "chief" and not RESTARTS:
            await_up(6)
            sys.exit(1)
        if not RESTARTS:
            stay("first", stubborn=False)
        """,
        "--restarts=1",
    )
    code, _, _ = launched.end()
    assert code == 0
    assert launched.left() == []
