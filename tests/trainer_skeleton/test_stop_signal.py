"""SIGTERM at every moment of a task, with a stand-in for TensorFlow, which takes seconds."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from trainer.distributed import waiting

STOPPED = "trainer: stopped by a signal before the training began\n"

# What TensorFlow does as the cluster forms: a thread, and a native handler that drops the signal.
PREAMBLE = """
import ctypes, os, signal, threading, time
from trainer.distributed import stop_signal

def be_tensorflow():
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal(signal.SIGTERM, ctypes.cast(libc.abs, ctypes.c_void_p))

def send():
    os.kill(os.getpid(), signal.SIGTERM)

"""

MOMENTS = {
    "while TensorFlow is imported": "stop_signal.block(); send(); be_tensorflow(); Stop()",
    "after TensorFlow's handler": "stop_signal.block(); be_tensorflow(); send(); Stop()",
    "before the cluster forms": "stop_signal.block(); send(); stop_signal.end_if_pending()",
    "before training": "stop_signal.block(); be_tensorflow(); Stop(); send(); time.sleep(60)",
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_sigterm_before_training_ends_the_task(python, moment):
    program = PREAMBLE + "Stop = stop_signal.StopSignal\n" + moment
    task = python("-c", program)
    out, err = task.communicate(timeout=300)
    assert (task.returncode, out, err) == (143, "", STOPPED)


def test_sigterm_during_training_is_left_to_all_tasks(python):
    program = """
stop_signal.block()
be_tensorflow()
stop = stop_signal.StopSignal()
stop.defer()
before = stop.received
send()
print(before, stop.received)
"""
    task = python("-c", PREAMBLE + program)
    out, err = task.communicate(timeout=300)
    assert (task.returncode, out, err) == (0, "False True\n", "")


def test_a_process_that_a_thread_of_tensorflow_forks_can_be_terminated(python):
    program = """
children = []

def fork():
    children.append(os.fork())
    if not children[0]:
        time.sleep(60)
        os._exit(0)

stop_signal.block()
thread = threading.Thread(target=fork)
thread.start()
thread.join()
os.kill(children[0], signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    task = python("-W", "ignore", "-c", PREAMBLE + program)
    out, err = task.communicate(timeout=300)
    assert (task.returncode, out, err) == (0, "-15\n", "")


def test_a_start_that_fails_still_ends_on_sigterm(python, tmp_path):
    """`trainer.task` itself, with a Keras that gets the signal and cannot be imported."""
    packages = tmp_path / "packages"
    packages.mkdir()
    fault = "os.kill(os.getpid(), signal.SIGTERM); raise ImportError"
    (packages / "keras.py").write_text(f"import os, signal; {fault}")
    path = f"{packages}:{Path(waiting.__file__).parents[2]}"
    task = python("-m", "trainer.task", PYTHONPATH=path)
    _, err = task.communicate(timeout=300)
    assert (task.returncode, err) == (-signal.SIGTERM, "")


def test_sigterm_while_peers_are_waited_for_ends_the_task(python):
    """TensorFlow's wait lets no Python run, so the process that names the peers ends it."""
    order = {"name": "chief", "others": {}, "limit": 60, "notice_every": 60}
    program = """
import json, subprocess, sys
stop_signal.block()
order = json.loads(sys.argv[2]) | {"task": os.getpid()}
subprocess.Popen([sys.executable, "-I", sys.argv[1], json.dumps(order)], stdin=subprocess.PIPE)
send()
time.sleep(60)
"""
    task = python("-c", PREAMBLE + program, waiting.__file__, json.dumps(order))
    _, err = task.communicate(timeout=300)
    assert (task.returncode, err) == (
        -signal.SIGKILL,
        "trainer: stopped by a signal while waiting for peers\n",
    )
