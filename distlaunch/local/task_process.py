"""One task in the host: forked, given its own surroundings, and made into its program."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import runpy
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.local import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

NOT_FOUND, NOT_RUNNABLE = 127, 126  # exit codes, as a shell gives them


@dataclass(frozen=True)
class TaskPlan:
    """The program of a task, and its environment."""

    name: str
    argv: Sequence[str]  # of a module: its name and arguments
    is_module: bool
    env: Mapping[str, str]
    work_dir: str
    cores: Sequence[int] | None = None  # that it is pinned to
    output: int = -1  # the file descriptor for what it writes
    container: str | None = None  # the name of the container that the process represents


class StartError(Exception):
    """A program that could not be started; its text is the reason."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


def start(
    plan: TaskPlan, private: Iterable[int], *, fork_module: bool
) -> tuple[int, Callable[[], None] | None]:
    """Fork a task and make it its program; raise StartError if it cannot be started.

    The `private` file descriptors are closed in it. Returned are, in the parent, its process id and
    None; in a child that runs a module in the forked process itself, 0 and what runs the module,
    for the child to call once it has left the parent's code.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child:
        os.close(writing)
        _raise_start_error(reading, child)
        return child, None
    try:
        _setup_child(plan, parent, {*private, reading})
        if not (plan.is_module and fork_module):
            _execute(plan)
    except BaseException as problem:  # noqa: BLE001  (nothing may go on as a second host)
        code = NOT_FOUND if isinstance(problem, FileNotFoundError) else NOT_RUNNABLE
        os.write(writing, json.dumps([_reason(problem, plan), code]).encode())
        os._exit(code)
    os.close(writing)
    return 0, lambda: _run_module(plan)


def _raise_start_error(pipe_end: int, child: int) -> None:
    """Wait until the child runs its program, or raise why it cannot."""
    with open(pipe_end, "rb") as pipe:
        problem = pipe.read()
    if problem:
        os.waitpid(child, 0)
        raise StartError(*json.loads(problem))


def _setup_child(plan: TaskPlan, parent: int, private: Iterable[int]) -> None:
    """Make a forked process one of its own: session, signals, files, cores, environment."""
    os.setsid()
    processes.die_with(parent)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(plan.output, 1)
    os.dup2(plan.output, 2)
    for descriptor in {*private, nothing, plan.output} - {0, 1, 2}:
        os.close(descriptor)
    if plan.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, plan.cores)
    os.environ.clear()
    os.environ.update(plan.env)
    os.chdir(plan.work_dir)


def _execute(plan: TaskPlan) -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, others would inherit that
    argv = [*([sys.executable, "-m"] if plan.is_module else []), *plan.argv]
    os.execvpe(argv[0], argv, plan.env)  # noqa: S606


def _reason(problem: BaseException, plan: TaskPlan) -> str:
    if isinstance(problem, OSError):
        # For a program that was looked up on PATH it is bytes: the last path tried.
        path = problem.filename if isinstance(problem.filename, str) else plan.argv[0]
        return f"{path}: {problem.strerror}"
    return f"{plan.argv[0]}: {problem}"


def _run_module(plan: TaskPlan) -> None:
    """Do what ``python -m`` does, in this process."""
    module = plan.argv[0]
    sys.stdout, sys.stderr = _unbuffered(1), _unbuffered(2)
    sys.argv = list(plan.argv)
    sys.path.insert(0, plan.work_dir)
    sys.excepthook = _without_our_frames
    _reseed()
    if not _is_there(module):
        sys.exit(f"no module named {module!r} in {plan.work_dir}")
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _unbuffered(descriptor: int) -> io.TextIOWrapper:
    errors = "backslashreplace" if descriptor == 2 else "strict"
    binary = io.FileIO(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(binary, encoding="utf-8", errors=errors, write_through=True)


def _reseed() -> None:
    """Give this task random numbers of its own; Python's own module does so by itself."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as problem:
        if problem.name and f"{module}.".startswith(f"{problem.name}."):
            return False
        raise


def _without_our_frames(
    kind: type[BaseException], problem: BaseException, trace: TracebackType | None
) -> None:
    """Show a traceback that begins where ``python -m`` would begin it."""
    ours: Any = (__file__, runpy.__file__, "<frozen runpy>")
    first = trace
    while first and first.tb_frame.f_code.co_filename not in ours:
        first = first.tb_next
    while first and first.tb_frame.f_code.co_filename in ours:
        first = first.tb_next
    sys.__excepthook__(kind, problem.with_traceback(first or trace), first or trace)
