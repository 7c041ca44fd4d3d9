"""Module jobs: TensorFlow is imported once, and every task is forked from there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
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
was_imported = {"tensorflow", "distlaunch_trainer.run"} <= set(sys.modules)
import atexit, json, os, signal, time
from pathlib import Path
import numpy as np
import tensorflow as tf
from trainer import helper

task = Path(os.environ["DISTLAUNCH_EVENTS"]).name.split(".")[0]
files = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
facts = {
    "was_imported": was_imported,
    "argv": sys.argv[1:],
    "main": sys.modules["__main__"].__spec__.name,
    "sum": float(tf.reduce_sum(tf.ones([3, 3]))),
    "colour": os.environ["COLOUR"],
    "openblas": os.environ.get("OPENBLAS_NUM_THREADS"),
    "sockets": [file for file in files if "/socket:" in file],
    "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "sigterm": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
    "sigchld": signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
    "parent": os.getppid(),
    "random": np.random.random(),
}
Path(f"{task}.json").write_text(json.dumps(facts))
atexit.register(Path(f"{task}.ended").touch)
atexit.register(print, "at exit")
print("no newline", end="")
if task == "worker-0":
    while not Path("chief.ended").exists():
        time.sleep(0.01)
    raise ValueError("on purpose")
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "distlaunch.yaml").write_text(PROJECT)
    (tmp_path / "trainer").mkdir()
    for name, text in (("__init__", ""), ("helper", ""), ("task", TASK)):
        (tmp_path / "trainer" / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.slow
def test_tasks_are_forked_from_one_process_that_imported_tensorflow(cli, project):
    """The traceback of one that fails begins with its program."""
    done = cli("local", "--", "--more")
    assert done.returncode == 1
    chief, worker = (
        json.loads((project / f"{task}.json").read_text()) for task in ("chief", "worker-0")
    )
    alike = {
        "was_imported": True,
        "argv": ["--given", "--more"],
        "main": "trainer.task",
        "sum": 9.0,
        "colour": "green",
        "openblas": None,
        "sockets": [],
        "sigint": True,
        "sigterm": True,
        "sigchld": True,
        "parent": chief["parent"],
    }
    assert chief == alike | {"random": chief["random"]}
    assert worker == alike | {"random": worker["random"]}
    assert chief["random"] != worker["random"]
    assert "oneDNN" not in done.stdout
    assert "chief    | no newlineat exit\n" in done.stdout
    line = 1 + TASK[: TASK.index("    raise ")].count("\n")
    assert [text for text in done.stdout.splitlines() if text.startswith("worker:0")] == [
        "worker:0 | no newlineTraceback (most recent call last):",
        f'worker:0 |   File "{project}/trainer/task.py", line {line}, in <module>',
        'worker:0 |     raise ValueError("on purpose")',
        "worker:0 | ValueError: on purpose",
        "worker:0 | at exit",
    ]


@pytest.fixture
def local(cli, project):
    """Run `distlaunch local` with another text for TensorFlow, and for the task."""

    def run(tensorflow: str, task: str | None, *words: str):
        install(project, tensorflow)
        if task is not None:
            (project / "trainer" / "task.py").write_text(task)
        return cli("local", *words)

    return run


def install(project: Path, tensorflow: str) -> None:
    package = project / "packages" / "tensorflow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(dedent(tensorflow))
    (package.parent / "keras.py").touch()
    job_file = PROJECT.replace("COLOUR: green", f"PYTHONPATH: {package.parent}")
    (project / "distlaunch.yaml").write_text(job_file)


def test_module_that_does_not_exist(local, project):
    (project / "trainer" / "task.py").unlink()
    done = local("", None)
    assert (done.returncode, "Traceback" in done.stdout) == (1, False)
    assert f"no module named 'trainer.task' in {project}" in done.stderr


def test_tensorflow_that_cannot_be_imported(local):
    done = local("raise RuntimeError('built for another processor')", "")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("distlaunch: error: RuntimeError: built for another processor (")


def test_a_process_with_threads_is_not_forked(local):
    thread = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    task = "import sys; print('tensorflow' in sys.modules, __name__, sys.argv[1:])"
    done = local(f"import threading, time; {thread}", task, "--workers=1")
    assert (done.returncode, done.stdout) == (0, "chief | False __main__ ['--given']\n")


def test_a_module_finds_others_where_python_does(local, project):
    done = local("", "import sys; print(sys.path, 'tensorflow' in sys.modules)", "--workers=1")
    command = [sys.executable, "-m", "trainer.task"]
    env = os.environ | {"PYTHONPATH": str(project / "packages")}
    python_itself = subprocess.check_output(command, cwd=project, env=env, text=True)
    expected = python_itself.replace("False", "True")
    assert (done.returncode, done.stdout) == (0, f"chief | {expected}")


def test_a_module_of_a_src_layout_runs_by_its_name(cli, project):
    (project / "src/mypkg").mkdir(parents=True)
    for name in ("tensorflow", "keras"):
        (project / f"src/{name}.py").touch()
    (project / "src/mypkg/data.py").write_text("ROWS = 5\n")
    (project / "src/mypkg/task.py").write_text("from mypkg.data import ROWS; print(ROWS)\n")
    done = cli("local", "--workers=1", "--set=module=mypkg.task")
    assert (done.returncode, done.stdout) == (0, "chief | 5\n")


def test_a_wrong_option_of_the_trainer_is_reported_once(local, project):
    shutil.rmtree(project / "trainer")
    shutil.copytree(TRAINER, project / "trainer")
    task = project / "trainer/task.py"  # with a main() of its own, its arguments are not checked
    task.write_text(task.read_text().replace("    return launch(", "    1\n    return launch("))
    done = local("", None, "--workers=4", "--", "--epoch=3")
    assert done.returncode == 2
    assert done.stdout == (
        "chief    | trainer: error: unrecognized arguments: --given --epoch=3 "
        "(--help lists the options)\n"
    )
    assert "distlaunch: error: chief failed with exit code 2" in done.stderr


def test_ctrl_c_while_tensorflow_is_imported(project, eventually):
    install(project, "import pathlib, time; pathlib.Path('importing').touch(); time.sleep(60)")
    launcher = subprocess.Popen(
        [sys.executable, "-m", "distlaunch", "local"], cwd=project, stderr=subprocess.PIPE
    )
    eventually((project / "importing").exists)
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=30)  # seconds: far from the end of that import
    assert (launcher.returncode, b"Traceback" in err) == (130, False)


@pytest.mark.parametrize("look", [host._changes, host._reaped])
def test_changes_of_a_process_are_reported(look, eventually):
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
