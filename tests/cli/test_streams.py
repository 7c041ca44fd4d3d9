"""Standard streams that are full, closed or left by their reader, whatever the command."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FULL = "distlaunch: error: the output cannot be written (no space left on device)\n"
UNBUFFERED = pytest.mark.parametrize("unbuffered", ["", "1"])


@pytest.fixture
def shell(tmp_path):
    """Run `distlaunch` with redirected streams."""

    def run(line: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line.replace("distlaunch", f"{sys.executable} -m distlaunch", 1)],
            cwd=tmp_path,
            env=os.environ | env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@UNBUFFERED
@pytest.mark.parametrize("words", ["--help", "init x"])
def test_full_disk_is_one_line(shell, words, unbuffered):
    done = shell(f"distlaunch {words} > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (1, FULL)


@UNBUFFERED
@pytest.mark.parametrize("words", ["", "no-such", "--debug init --starter x"])
def test_stderr_on_a_full_disk_leaves_the_exit_code(shell, words, unbuffered):
    done = shell(f"distlaunch {words} 2> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stdout) == (2, "")


def test_job_that_writes_to_a_full_disk_is_stopped(shell):
    done = shell("distlaunch -q local --workers 2 -- yes > /dev/full")
    assert (done.returncode, done.stderr) == (1, FULL)


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["tf-config --hosts a", "-q local --workers 2 -- echo one"])
def test_closed_streams_are_no_error(shell, words, closed):
    done = shell(f"distlaunch {words} {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ""


def test_ctrl_c_while_modules_are_imported(cli, tmp_path):
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = cli("--help", env=os.environ | {"PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (130, "distlaunch: interrupted\n")
