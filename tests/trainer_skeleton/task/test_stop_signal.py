"""SIGTERM at every moment of a task, with a stand-in for TensorFlow, which takes seconds."""

from __future__ import annotations

import signal

import pytest

from distlaunch_trainer.cluster import peer_watchdog

from ..conftest import BASE  # noqa: TID252

# What TensorFlow does as the cluster forms: a thread, and a native handler that drops the signal.
PREAMBLE = """
import ctypes, json, os, signal, subprocess, sys, threading, time
from distlaunch_trainer.task import stop_signal

def be_tensorflow():
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal(signal.SIGTERM, ctypes.cast(libc.abs, ctypes.c_void_p))

def send():
    os.kill(os.getpid(), signal.SIGTERM)

stop_signal.block()
"""

DURING_TRAINING = """
be_tensorflow()
stop = stop_signal.StopSignal()
stop.defer()
before = stop.received
send()
print(before, stop.received)
"""

# In a process that a thread of TensorFlow forks.
AFTER_TRAINING = """
be_tensorflow()
stop = stop_signal.StopSignal()
stop.defer()
stop.end_at_once("after it")
send()
time.sleep(60)
"""

IN_A_FORK = """
children = []

def fork():
    children.append(os.fork())
    if not children[0]:
        time.sleep(60)
        os._exit(0)

thread = threading.Thread(target=fork)
thread.start()
thread.join()
os.kill(children[0], signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""

# TensorFlow's wait lets no Python run, so the process that names the peers ends it.
WHILE_PEERS_ARE_WAITED_FOR = """
wait = {"name": "chief", "others": {}, "limit": 60, "notice_every": 60, "task": os.getpid()}
command = [sys.executable, "-I", sys.argv[1], json.dumps(wait)]
subprocess.Popen(command, stdin=subprocess.PIPE)
send()
time.sleep(60)
"""
STOPPED_WAITING = "trainer: stopped by a signal while waiting for peers\n"

BEFORE_TRAINING = {
    "while TensorFlow is imported": "send(); be_tensorflow(); stop_signal.StopSignal()",
    "after TensorFlow's handler": "be_tensorflow(); send(); stop_signal.StopSignal()",
    "before the cluster forms": "send(); stop_signal.end_if_pending()",
    "before training": "be_tensorflow(); stop_signal.StopSignal(); send(); time.sleep(60)",
}


@pytest.mark.parametrize("program", BEFORE_TRAINING.values(), ids=BEFORE_TRAINING)
def test_sigterm_before_training_ends_the_task(python, program):
    task = python("-c", PREAMBLE + program)
    assert (task.returncode, task.stdout) == (143, "")
    assert task.stderr == "trainer: stopped by a signal before the training began\n"


STOPPED_WAITING = (-9, "", "trainer: stopped by a signal while waiting for peers\n")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (DURING_TRAINING, (0, "False True\n", "")),
        (AFTER_TRAINING, (143, "", "trainer: stopped by a signal after it\n")),
        (IN_A_FORK, (0, "-15\n", "")),
        (WHILE_PEERS_ARE_WAITED_FOR, STOPPED_WAITING),
    ],
    ids=["during training", "after training", "in a fork", "while peers are waited for"],
)
def test_sigterm_later(python, program, expected):
    task = python("-W", "ignore", "-c", PREAMBLE + program, peer_watchdog.__file__)
    assert (task.returncode, task.stdout, task.stderr) == expected


def test_a_start_that_fails_still_ends_on_sigterm(python, tmp_path):
    """`trainer.task` itself, with a Keras that gets the signal and cannot be imported."""
    fault = "os.kill(os.getpid(), signal.SIGTERM); raise ImportError"
    (tmp_path / "keras.py").write_text(f"import os, signal; {fault}")
    path = f"{tmp_path}:{BASE}"
    task = python("-m", "trainer.task", PYTHONPATH=path)
    stopped = "trainer: stopped by a signal before the training began"
    assert (task.returncode, task.stderr.splitlines()[-1]) == (128 + signal.SIGTERM, stopped)
