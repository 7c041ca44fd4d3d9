"""Module jobs: TensorFlow is imported once, and every task is forked from there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from distlaunch.local import host

TRAINER = Path(__file__).parents[2] / "trainer_skeleton" / "base" / "trainer"
PROJECT = (
    "name: tiny\nmodule: trainer.task\nargs: [--given]\n"
    "cluster: {chief: {machine: n1-standard-4}, workers: {machine: n1-standard-4}}\n"
    "env: {COLOUR: green}\n"
)

TASK = """
import sys
was_imported = "tensorflow" in sys.modules
import atexit, json, os, signal
from pathlib import Path
import numpy as np
import tensorflow as tf
from trainer import helper

def is_socket(number):
    try:
        return os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    except FileNotFoundError:
        return False

task = Path(os.environ["DISTLAUNCH_EVENTS"]).name.split(".")[0]
seen = {
    "was_imported": was_imported,
    "parent": os.getppid(),
    "argv": sys.argv[1:],
    "main": sys.modules["__main__"].__spec__.name,
    "sum": float(tf.reduce_sum(tf.ones([3, 3]))),
    "intra": tf.config.threading.get_intra_op_parallelism_threads(),
    "random": np.random.random(),
    "colour": os.environ["COLOUR"],
    "openblas": os.environ.get("OPENBLAS_NUM_THREADS"),
    "sockets": [number for number in os.listdir("/proc/self/fd") if is_socket(number)],
    "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "sigterm": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
    "sigchld": signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
    "helper": helper.__name__,
}
Path(f"{task}.json").write_text(json.dumps(seen))
atexit.register(print, "at exit")
print("no newline", end="")
if "--raise" in sys.argv and task == "worker-0":
    raise ValueError("on purpose")
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(PROJECT)
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "__init__.py").touch()
    (tmp_path / "trainer" / "helper.py").touch()
    (tmp_path / "trainer" / "task.py").write_text(dedent(TASK))
    return tmp_path


@pytest.mark.slow
def test_tasks_are_forked_from_one_process_that_imported_tensorflow(cli, project):
    ended = cli("local", "--", "--more")
    assert ended.returncode == 0, ended.stderr
    seen = [json.loads((project / f"{task}.json").read_text()) for task in ("chief", "worker-0")]
    for each in seen:
        assert each["was_imported"]
        assert each["argv"] == ["--given", "--more"]
        assert each["main"] == "trainer.task"
        assert each["sum"] == 9.0
        assert each["colour"] == "green"
        assert each["openblas"] is None
        assert each["sockets"] == []
        assert all(each[name] for name in ("sigint", "sigterm", "sigchld"))
    assert seen[0]["parent"] == seen[1]["parent"]
    assert seen[0]["random"] != seen[1]["random"]
    assert ended.stdout.count("no newlineat exit") == 2
    assert "oneDNN" not in ended.stdout


@pytest.mark.slow
def test_a_traceback_begins_with_the_program_and_a_missing_module_is_told(cli, project):
    ended = cli("local", "--", "--raise")
    assert ended.returncode == 1
    line = 1 + TASK[: TASK.index("    raise ")].count("\n")
    shown = [line for line in ended.stdout.splitlines() if line.startswith("worker:0")]
    assert shown == [
        "worker:0 | no newlineTraceback (most recent call last):",
        f'worker:0 |   File "{project}/trainer/task.py", line {line}, in <module>',
        'worker:0 |     raise ValueError("on purpose")',
        "worker:0 | ValueError: on purpose",
        "worker:0 | at exit",
    ]
    assert "distlaunch/local" not in ended.stdout
    (project / "trainer" / "task.py").unlink()
    ended = cli("local")
    assert ended.returncode == 1
    assert f"no module named 'trainer.task' in {project}" in ended.stderr
    assert "Traceback" not in ended.stdout


@pytest.fixture
def with_another_tensorflow(project):
    """Put a package of this text in TensorFlow's place."""

    def put(text: str) -> None:
        package = project / "packages" / "tensorflow"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(dedent(text))
        (package.parent / "keras.py").touch()
        (project / "distlaunch.yaml").write_text(
            PROJECT.replace("COLOUR: green", f"PYTHONPATH: {package.parent}")
        )

    return put


def test_a_package_that_cannot_be_imported_is_told_in_one_line(cli, with_another_tensorflow):
    with_another_tensorflow("raise RuntimeError('built for another processor')")
    ended = cli("local")
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("distlaunch: error: RuntimeError: built for another processor (")
    assert "Traceback" not in ended.stderr


def test_a_process_with_threads_is_not_forked(cli, project, with_another_tensorflow):
    with_another_tensorflow(
        """
        import threading, time
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        """
    )
    (project / "trainer" / "task.py").write_text(
        "import sys; print('tensorflow' in sys.modules, __name__, sys.argv[1:])"
    )
    ended = cli("local", "--workers=1")
    assert (ended.returncode, ended.stdout) == (0, "chief | False __main__ ['--given']\n")


def test_a_module_finds_others_where_python_does(cli, project, with_another_tensorflow):
    with_another_tensorflow("")
    show = "import sys; print(sys.path, 'tensorflow' in sys.modules)"
    (project / "trainer" / "task.py").write_text(show)
    env = os.environ | {"PYTHONPATH": str(project / "packages")}
    python_itself = subprocess.run(
        [sys.executable, "-m", "trainer.task"],
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    ended = cli("local", "--workers=1")
    expected = python_itself.stdout.replace("False", "True")
    assert (ended.returncode, ended.stdout) == (0, f"chief | {expected}")


def test_a_wrong_option_of_the_trainer_is_reported_once(project, with_another_tensorflow):
    with_another_tensorflow("")
    shutil.rmtree(project / "trainer")
    shutil.copytree(TRAINER, project / "trainer")
    command = [sys.executable, "-m", "distlaunch", "local", "--workers=4", "--", "--epoch=3"]
    ended = subprocess.run(
        command,
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout.count("trainer: error: ") == 1, ended.stdout
    assert "chief    | trainer: error: unrecognized arguments: --given --epoch=3" in ended.stdout
    assert "distlaunch: error: chief failed with exit code 2" in ended.stdout


def test_ctrl_c_while_tensorflow_is_imported(project, with_another_tensorflow, eventually):
    with_another_tensorflow(
        """
        import pathlib, time
        pathlib.Path("importing").touch()
        time.sleep(60)
        """
    )
    launcher = subprocess.Popen(
        [sys.executable, "-m", "distlaunch", "local"],
        cwd=project,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually((project / "importing").exists)
    began = time.monotonic()
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 130
    assert "Traceback" not in err
    assert time.monotonic() - began < 20  # far from the end of that import


@pytest.mark.parametrize("look", [host._changes, host._reaped])
def test_what_becomes_of_a_process_is_seen(look, eventually):
    seen = []

    def sees(*expected):
        seen.extend(look(process))
        return seen == [*expected]

    process = os.posix_spawn(sys.executable, [sys.executable, "-c", "while True: pass"], os.environ)
    os.kill(process, signal.SIGSTOP)
    eventually(lambda: sees({"saw": "stopped"}))
    os.kill(process, signal.SIGCONT)
    eventually(lambda: sees({"saw": "stopped"}, {"saw": "continued"}))
    seen.clear()
    os.kill(process, signal.SIGKILL)
    eventually(lambda: sees({"saw": "exited", "signal": 9}))
    if look is host._changes:
        os.waitpid(process, 0)
