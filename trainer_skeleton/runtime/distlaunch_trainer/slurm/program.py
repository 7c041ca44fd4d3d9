"""The program of a task, from its start to its end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from distlaunch_trainer.slurm.environment import environment, task_name

FOLDER = "DISTLAUNCH_LAUNCH_FOLDER"
"""The variable with the folder for the output, events and ends of the tasks."""
OWN_FOLDERS = "DISTLAUNCH_OWN_FOLDERS"
"""The variable that is set where each task works in a copy of the working folder."""

_LOOK = 1.0  # seconds between two looks at whether the chief is done
_TIME_TO_END = 30.0  # seconds after the chief is done that a task which trains has to end
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run(program: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a task's program to its end, and return the exit code.

    With a launch's folder, its output goes to ``task-logs/attempt-N/TASK.log`` there, and how it
    ended to ``TASK.end.json``. A task that waits for others without an end, such as a parameter
    server, is ended after the chief.
    """
    variables = environment(environ)
    inherited = {name: value for name, value in environ.items() if name != "TF_CONFIG"}
    restarts = environ.get("SLURM_RESTART_COUNT") or "0"
    env = {**inherited, "DISTLAUNCH_RESTARTS": restarts, "PYTHONUNBUFFERED": "1", **variables}
    folder = environ.get(FOLDER)
    if not folder:
        os.execvpe(program[0], [*program], env)  # noqa: S606
    name = task_name(environ)
    attempt = Path(folder, "task-logs", f"attempt-{int(restarts) + 1}")
    attempt.mkdir(parents=True, exist_ok=True)
    stem = attempt / name.replace(":", "-")
    env["DISTLAUNCH_EVENTS"] = f"{stem}.events.jsonl"
    work_dir = _work_dir(Path(folder), name) if environ.get(OWN_FOLDERS) else None
    return _Task(name, stem, attempt / "chief.end.json").run(program, env, work_dir)


def _work_dir(folder: Path, name: str) -> Path | None:
    """Return a new copy of the working folder for a task, None for the chief."""
    if name == "chief":
        return None
    copy = folder / "task-folders" / name.replace(":", "-")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(Path.cwd(), copy, symlinks=True)
    return copy


class _Task:
    """The program of a task, its log, and how it ended."""

    def __init__(self, name: str, stem: Path, chief_end: Path) -> None:
        self._name = name
        self._stem = stem
        self._chief_end = chief_end
        self._is_ended_here = False

    def run(self, program: Sequence[str], env: Mapping[str, str], work_dir: Path | None) -> int:
        """Run the program to its end, and return the exit code of the task."""
        # Slurm sends signals to the program, too: this process only outlives it.
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        started = time.time()
        # For `distlaunch shell`.
        Path(f"{self._stem}.node").write_text(os.environ.get("SLURMD_NODENAME", ""))
        with Path(f"{self._stem}.log").open("ab") as log:
            code = self._wait(
                subprocess.Popen([*program], env={**env}, cwd=work_dir, stdout=log, stderr=log)
            )
        self._write_end(code, started)
        return 0 if self._is_dispensable(code) else code if code >= 0 else 128 - code

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Return the program's exit code, or minus its signal."""
        done: float | None = None  # when the chief was seen to be done
        grace = _TIME_TO_END if self._name.partition(":")[0] == "worker" else 0.0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=_LOOK)
            now = time.monotonic()
            if done is None and self._name != "chief" and self._chief_is_done():
                done = now
            if done is not None and now >= done + grace:
                self._is_ended_here = True
                (process.kill if now >= done + grace + _TIME_TO_END else process.terminate)()

    def _chief_is_done(self) -> bool:
        try:
            return bool(json.loads(self._chief_end.read_bytes())["code"] == 0)
        except (OSError, ValueError, KeyError):
            return False

    def _is_dispensable(self, code: int) -> bool:
        """Return whether the job goes on without this task: it was killed, or ended here."""
        return self._is_ended_here or (code < 0 and self._name.startswith("evaluator"))

    def _write_end(self, code: int, started: float) -> None:
        end = {
            "task": self._name,
            "code": max(code, 0),
            "signal": -code if code < 0 else None,
            "started": started,
            "ended": time.time(),
            "node": os.environ.get("SLURMD_NODENAME", ""),
        }
        part = Path(f"{self._stem}.end.json.part")
        part.write_text(json.dumps(end))
        part.replace(f"{self._stem}.end.json")
