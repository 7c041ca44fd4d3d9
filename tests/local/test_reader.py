"""A reader that is slow or leaves, and a terminal that hangs up: nothing is lost or killed."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
from emulators import wait_until_full

# Tasks that write all the time and, at SIGTERM, save for as long as the test wants them to.
SAVE_SLOWLY = """
def save(*_):
    print("saving", flush=True)
    is_up("saving")
    while not Path("go").exists():
        time.sleep(0.01)
    Path(f"{TASK}.saved").touch()
    sys.exit()

signal.signal(signal.SIGTERM, save)
is_up("task")
while True:
    print("a line", flush=True)
    report("step", step=1)
    time.sleep(0.01)
"""
FAIL_AND_WRITE = """
def leave(*_):
    print("too late", flush=True)
    sys.exit()

signal.signal(signal.SIGTERM, leave)
is_up("task")
await_up(2)
sys.exit(7) if TASK == "chief" else time.sleep(60)
"""
WRITE_FOR_EVER = """
is_up("task")
while True:
    print("x" * 99)
"""


def close_stdout(launched):
    launched.process.stdout.close()
    launched.process.stdout = None


@pytest.mark.parametrize("first", ["reader", "Ctrl-C"])
def test_a_stop_when_the_reader_leaves_gives_time_too(launch, tmp_path, first):
    launched = launch(SAVE_SLOWLY)
    launched.until_up(2)
    if first == "reader":
        close_stdout(launched)
        launched.until_up(4)
    launched.process.send_signal(signal.SIGINT)
    while b"SIGINT: stopping the tasks" not in launched.process.stderr.readline():
        assert not launched.is_over
    if first == "Ctrl-C":
        close_stdout(launched)
        launched.until_up(4)
    (tmp_path / "go").touch()
    code, _, err = launched.end()
    assert (code, err) == (130, "")
    assert len(list(tmp_path.glob("*.saved"))) == 2
    assert launched.left() == []


def test_a_failure_stays_one_and_is_not_restarted_when_the_reader_leaves(launch):
    launched = launch(FAIL_AND_WRITE, "--restarts=1")
    close_stdout(launched)
    code, _, err = launched.end()
    assert (code, err.count("chief failed with exit code 7")) == (7, 1)


def test_a_full_disk_is_reported_for_a_job_that_failed(launch):
    with Path("/dev/full").open("w") as full:
        code, _, err = launch(FAIL_AND_WRITE, stdout=full).end()
    assert code == 7
    assert "error: the output cannot be written (no space left on device)\n" in err


def test_a_job_is_done_though_the_reader_of_its_summary_left(launch):
    launched = launch(
        "report('end', summary={'global_batch': 64}); is_up('task'); await_up(2)", workers=1
    )
    close_stdout(launched)
    (launched.folder / "up" / "reader").touch()
    code, _, err = launched.end()
    assert (code, "error" in err) == (0, False)


@pytest.mark.parametrize("stderr", [subprocess.PIPE, subprocess.STDOUT])
@pytest.mark.parametrize("program", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_ctrl_c_ends_a_job_whose_reader_takes_nothing(launch, program, stderr):
    launched = launch(program + WRITE_FOR_EVER, stderr=stderr)
    wait_until_full(launched.process.stdout)
    launched.process.send_signal(signal.SIGINT)
    if program:
        time.sleep(1)
        launched.process.send_signal(signal.SIGINT)
    assert launched.process.wait(20) == 130
    assert launched.left() == []
    lines = [line for line in launched.end()[1].split("\n") if "distlaunch: " not in line]
    assert {line.partition("| ")[2] for line in lines[:-1]} == {"x" * 99}
    assert lines[-1] == ""


def test_a_terminal_that_hangs_up_gives_time_to_save(launch, tmp_path):
    terminal, end = pty.openpty()
    launched = launch(
        SAVE_SLOWLY,
        env={"TERM": "xterm"},
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(end)
    while len(list(tmp_path.glob("up/*"))) < 2:
        os.read(terminal, 1 << 16)
    os.close(terminal)
    launched.until_up(4)
    launched.process.send_signal(signal.SIGHUP)  # as a shell does when the kernel has done so
    time.sleep(0.3)
    (tmp_path / "go").touch()
    assert launched.process.wait(60) == 129
    assert len(list(tmp_path.glob("*.saved"))) == 2


def _take_terminal():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
