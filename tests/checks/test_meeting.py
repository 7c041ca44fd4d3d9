"""What is done at once imports the same modules, and no import may wait for another for ever."""

from __future__ import annotations

import subprocess
import sys

from .corpus.cases import Case

# Says of each thread whether the package that most of them import was there when it started.
TELLING = """
import os, sys, threading

start = threading.Thread.start

def telling(thread):
    there = "distlaunch.image" in sys.modules
    os.write(2, b"image\\n" if there else b"nothing\\n")  # at once, as several do
    start(thread)

threading.Thread.start = telling
from distlaunch.__main__ import main
main()
"""


def test_no_thread_begins_before_the_package_is_there_whose_modules_need_each_other(written):
    done = subprocess.run(
        [sys.executable, "-c", TELLING, "check", "--endpoint", "http://127.0.0.1:9"],
        cwd=written(Case()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ready" in done.stdout, done.stderr
    assert set(done.stderr.splitlines()) == {"image"}
