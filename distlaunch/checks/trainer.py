"""The bundled trainer in a project: its arguments, what it refuses or does differently, a step."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
import tempfile
from argparse import ArgumentError, Namespace
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import __version__, resources, summary
from distlaunch.checks.problem import error, warning
from distlaunch.errors import did_you_mean
from distlaunch.files import atomic_write, make_folder
from distlaunch.job.load import FILE_NAME
from distlaunch.job.model import RangeParameter
from distlaunch.paths import CHECKED
from distlaunch.python_command import distlaunch_command, on_stdin
from distlaunch.text import duration

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterable, Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.requirements import ImageRequirements
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.model import ChoiceParameter, Job
    from distlaunch.job.vertex.view import JobRequest

RUN_TIMEOUT = 1_800  # seconds, as all of the validation data are read
ONE_STEP = ("--epochs=1", "--steps-per-epoch=1", "--no-resume")

_OPTIONS = resources.trainer_package() / "options.py"
_VERSION = re.compile(r"""^__version__ = ["'](.+)["']""", re.MULTILINE)
_IMPORT = re.compile(rf"^\s*(?:from|import)\s+{resources.TRAINER}\b", re.MULTILINE)
_LAYER = "BatchNormalization"
# The models of keras.applications that have such layers.
_APPLICATIONS = re.compile("ResNet|MobileNet|EfficientNet|DenseNet|Inception|Xception|NASNet")
_ERROR = "error: "  # in the line with the reason of a failure


@dataclass(frozen=True, slots=True)
class Trainer:
    """The program of a project that trains with the trainer package."""

    folder: Path  # of the job's module
    package: str
    library: Path  # the folder of the trainer package: the installed one, or a copy in the project
    version: str  # of that package
    options: Namespace  # the job's arguments as the installed package's parser reads them
    problems: tuple[Problem, ...] = ()  # the arguments that it refuses
    changed_task: str = ""  # the code by which it may have other options


def find_trainer(launch: LaunchRequest) -> Trainer | None:
    """Return the program if it uses the trainer package, None if it is another one."""
    arguments = _program_arguments(launch.job)
    package, _, name = launch.job.module.rpartition(".")
    if arguments is None or not package or launch.job.is_script:
        return None
    folder = launch.folder.joinpath(*package.split("."))
    task = folder / f"{name}.py"
    if not _IMPORT.search(_text(task)):
        return None
    copy = launch.folder / resources.TRAINER
    library = copy if copy.is_dir() else resources.trainer_package()
    match = _VERSION.search(_text(library / "__init__.py"))
    if match is None:
        return None
    options, problems = parse_arguments(arguments)
    original = resources.skeleton() / "base" / "trainer" / "task.py"
    is_changed = _parsing(_text(task)) != _parsing(_text(original))
    changed_task = f"main() of {task.relative_to(launch.folder).as_posix()}" if is_changed else ""
    own = library / "options.py"  # of a copy, which may have other options
    if own.is_relative_to(launch.folder) and _text(own) != _text(_OPTIONS):
        changed_task = own.relative_to(launch.folder).as_posix()
    return Trainer(folder, package, library, match[1], options, tuple(problems), changed_task)


def _parsing(source: str) -> list[str]:
    """Return what a task.py parses its arguments with: the parser's import, and `main()`."""
    try:
        nodes = ast.parse(source).body
    except SyntaxError:
        return []
    return [
        ast.dump(node)
        for node in nodes
        if (isinstance(node, ast.ImportFrom) and node.module == resources.TRAINER)
        or (isinstance(node, ast.FunctionDef) and node.name == "main")
    ]


def _program_arguments(job: Job) -> tuple[str, ...] | None:
    """Return the arguments of the job's module, None if the chief runs another program."""
    program = job.cluster.chief.program
    if program is None:
        return job.args
    return None if program.image or program.command or program.module else program.args


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


@cache
def trainer_parser() -> ArgumentParser:
    """Return the package's parser from its file alone, which needs neither TensorFlow nor Keras."""
    parser: ArgumentParser = runpy.run_path(str(_OPTIONS))["parser"]()
    parser.exit_on_error = False
    return parser


@cache
def option_names() -> frozenset[str]:
    """Return the trainer's options, such as ``--epochs``."""
    actions = trainer_parser()._actions  # noqa: SLF001 - argparse has no other list of them
    return frozenset(name for action in actions for name in action.option_strings)


def parse_arguments(
    words: Iterable[str], where: str = "args", **defaults: Any
) -> tuple[Namespace, list[Problem]]:
    """Return the options among a program's arguments, and the arguments that are refused.

    An option that is refused has its default value; `defaults` replace those of the parser.
    """
    parser = trainer_parser()
    options = parser.parse_args([], Namespace(**defaults))
    groups = _by_option(words)
    return options, [each for group in groups for each in _parse(parser, group, options, where)]


def script_problems(job: Job) -> Iterator[Problem]:
    """Yield the options of the trainer package that a script does not have."""
    names = runpy.run_path(str(_OPTIONS))["SCRIPT_OPTIONS"]
    known = {f"--{name.replace('_', '-')}" for name in (*names, "no_resume", "debug")}
    for words in _by_option(job.trainer_options):
        if (name := words[0].partition("=")[0]) in known:
            yield from parse_arguments(words, "trainer_options")[1]
        else:
            what = f"a script has no option {name} of the trainer"
            remedy = f"it has {', '.join(sorted(known))}; its own arguments go into args"
            yield error("argument-unknown", "trainer_options", what, remedy)


def _parse(
    parser: ArgumentParser, words: list[str], options: Namespace, where: str
) -> Iterator[Problem]:
    """Add an option's value to the options, or yield why it is refused."""
    try:
        _, unknown = parser.parse_known_args(words, options)
    except ArgumentError as refusal:
        message = str(refusal).removeprefix("argument ")
        remedy = "'python -m trainer.task --help' lists the options and their values"
        yield error("argument-unknown", where, message, remedy)
        return
    if not unknown:
        return
    word = unknown[0].partition("=")[0]
    if not word.startswith("-"):
        what, remedy = f"unexpected positional argument {word!r}", f"write --NAME={word}"
    else:
        names = sorted(option_names())
        what = f"the trainer has no option {word}"
        remedy = did_you_mean(word, names).removeprefix("; ") or f"it has {', '.join(names)}"
    yield error("argument-unknown", where, what, remedy)


def _by_option(words: Iterable[str]) -> list[list[str]]:
    """Return each option with its values, so that each is refused by itself."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(word)
    return [group for group in groups if group[0] not in ("-h", "--help")]


def run_one_step(launch: LaunchRequest, trainer: Trainer | None) -> list[Problem]:
    """Train one step in a process of this machine, in a temporary folder; it records the data."""
    skipped = _reason_to_skip(launch, trainer)
    if skipped:
        return [skipped]
    with tempfile.TemporaryDirectory(prefix="distlaunch-check-") as folder:
        args = [*launch.job.args, *ONE_STEP, f"--job-dir={folder}"]
        overrides = [*launch.overrides, f"module={launch.job.module}"]  # --config may name another
        options = [word for override in overrides for word in ("--set", override)]
        reason = _failure(["local", "--workers=1", *options, "--", *args], launch.folder)
        if reason is None and not (written := Path(folder, summary.FILE_NAME)).exists():
            reason = "exit code 0 before the end of training"
        elif reason is None:
            with suppress(OSError):  # the data are unknown to later checks then
                kept = make_folder((launch.folder / CHECKED).parent, below=launch.folder)
                atomic_write(kept / summary.FILE_NAME, written.read_bytes())
    if reason is None:
        return []
    remedy = f"see its output with 'distlaunch local --workers 1 -- {' '.join(ONE_STEP)}'"
    return [error("run-failed", "module", f"one step in one process: {reason}", remedy)]


def _reason_to_skip(launch: LaunchRequest, trainer: Trainer | None) -> Problem | None:
    if sys.platform == "win32":
        reason, remedy = "'distlaunch local' needs Linux or macOS", "on Windows use WSL"
    elif trainer is None:
        reason = "the program is not the trainer that 'distlaunch init' writes"
        remedy = "try it with 'distlaunch local'"
    elif not (launch.folder / FILE_NAME).exists():
        reason = f"'distlaunch local' needs {FILE_NAME}, which is missing"
        remedy = "write one with 'distlaunch init'"
    elif find_spec("tensorflow") is None:
        reason = f"TensorFlow is not installed in the environment of {sys.executable}"
        remedy = f"run {resources.INSTALL_TENSORFLOW}"
    else:
        return None
    return warning("run-skipped", "module", f"{reason}: nothing was run", remedy)


def _failure(words: list[str], folder: Path) -> str | None:
    """Run a command of distlaunch in a folder and return why it failed, None if it did not."""
    try:
        with on_stdin(words) as stdin:
            done = subprocess.run(
                distlaunch_command(),
                cwd=folder,
                stdin=stdin,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=RUN_TIMEOUT,
            )
    except subprocess.TimeoutExpired:
        return f"timed out after {duration(RUN_TIMEOUT)}"
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line.partition(_ERROR)[2].strip() for line in lines if _ERROR in line]
    return f"exit code {done.returncode}: {(errors or lines[-1:] or ['no output'])[0]}"


def problems(
    trainer: Trainer, job: Job, request: JobRequest, requirements: ImageRequirements, folder: Path
) -> Iterator[Problem]:
    """Yield what the bundled trainer cannot do, or does in another way than expected."""
    yield from code_problems(trainer, job, folder)
    yield from role_problems(trainer, request)
    if request.strategy == "SPOT":
        yield from _spot_problems(trainer)
    pools = [pool for pool in request.pools if pool.is_training]
    replicas = sum(pool.replicas * max(1, pool.accelerator_count) for pool in pools)
    is_in_step = replicas > 1 and not request.has_parameter_servers
    if is_in_step and not trainer.options.sync_batch_norm:
        model = trainer.folder / "model.py"
        yield from _unsynchronized(_parsed(model), model.relative_to(folder).as_posix())
    yield from _copy_problems(trainer, folder)
    yield from _keras_problems(job, requirements)


def code_problems(trainer: Trainer, job: Job, folder: Path) -> Iterator[Problem]:
    """Yield what the trainer refuses wherever it runs."""
    for name, function in (("model", "create_model"), ("data", "training")):
        file = trainer.folder / f"{name}.py"
        yield from _undefined(_parsed(file), function, file.relative_to(folder).as_posix())
    yield from _argument_problems(trainer, job)


def _parsed(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None  # other rules report it


def _undefined(tree: ast.Module | None, function: str, file: str) -> Iterator[Problem]:
    """Yield an error if a module of the user has no function that the trainer calls."""
    names = rf"'({function}|__getattr__|globals|\*)'"
    if tree and not re.search(names, ast.dump(tree)):
        what = f"no function {function}(), which the trainer calls"
        remedy = f"write def {function}():, see the file of a new project: 'distlaunch init NEW'"
        yield error("trainer-incomplete", file, what, remedy)


def _copy_problems(trainer: Trainer, folder: Path) -> Iterator[Problem]:
    """Yield a warning if the project has an older copy of the trainer package."""
    if not trainer.library.is_relative_to(folder):
        return
    library = trainer.library.relative_to(folder).as_posix()
    if _numbers(trainer.version) < _numbers(__version__):
        what = f"the copy is of distlaunch {trainer.version}, this is {__version__}"
        remedy = "run 'distlaunch eject --force', which keeps changed files as FILE.bak"
        yield warning("trainer-older", f"{library}/__init__.py", what, remedy)


def role_problems(trainer: Trainer, request: JobRequest) -> Iterator[Problem]:
    """Yield the pools that the trainer does not use as requested."""
    for pool in request.pools:
        if pool.image or pool.module:
            continue
        if pool.role == "parameter_servers" and not any(p.role == "workers" for p in request.pools):
            what = "parameter servers need a worker: the chief only coordinates"
            yield error("trainer-role", pool.section, what, "add cluster.workers")
        elif (
            pool.role == "workers" and pool.accelerator_count > 1 and request.has_parameter_servers
        ):
            what = f"with parameter servers a worker uses one of its {pool.accelerator_count} GPUs"
            remedy = "set count: 1, and add workers"
            key = "gpus" if pool.is_on_slurm else "accelerator.count"
            yield error("trainer-role", f"{pool.section}.{key}", what, remedy)
        elif pool.role == "evaluators" and pool.replicas > 1:
            what = f"the bundled trainer has one evaluator, and {pool.replicas} are requested"
            yield error("trainer-role", f"{pool.section}.count", what, "set count: 1")
        elif pool.has_tpu and trainer.options.strategy != "tpu":
            what = f"the trainer would not use the TPU of {pool.section}"
            yield error("trainer-tpu", "args", what, "add --strategy=tpu")


def _spot_problems(trainer: Trainer) -> Iterator[Problem]:
    preempted = "SPOT machines can be preempted at any time, and"
    if not trainer.options.checkpoint_every:
        what = f"{preempted} checkpoints are only written at the end of an epoch"
        remedy = "add --checkpoint-every=500, or as many steps as may be lost"
        yield warning("spot-without-checkpoints", "args", what, remedy)
    if not trainer.options.resume:
        what = f"{preempted} --no-resume then starts from scratch"
        yield warning("spot-without-resume", "args", what, "remove --no-resume")


def _unsynchronized(tree: ast.Module | None, file: str) -> Iterator[Problem]:
    """Yield a warning for the first layer that normalizes the rows of each replica alone."""
    nodes = list(ast.walk(tree)) if tree else []
    sets_trainable = any(getattr(node, "attr", None) == "trainable" for node in nodes)
    for call in nodes:
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func).rpartition(".")[2]
        arguments = {each.arg for each in call.keywords}
        is_layer = name == _LAYER and arguments.isdisjoint({"synchronized", "trainable", None})
        if is_layer or (_APPLICATIONS.match(name) and not sets_trainable):
            what = (
                f"{name} normalizes the rows of each replica alone: weights depend on their number"
            )
            remedy = "add --sync-batch-norm to args, or write synchronized=True"
            yield warning("batch-norm-unsynchronised", f"{file}:{call.lineno}", what, remedy)
            return


def _keras_problems(job: Job, requirements: ImageRequirements) -> Iterator[Problem]:
    backend = job.env.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        what = f"the bundled trainer runs Keras on tensorflow, got {backend!r}"
        yield error("keras-backend", "env.KERAS_BACKEND", what, "remove it")
    for line in requirements.lines:
        specifier = line.requirement.specifier if line.requirement else None
        if line.name == "keras" and specifier and (specifier & resources.KERAS).is_unsatisfiable():
            what = f"the bundled trainer needs keras{resources.KERAS}, got keras{specifier}"
            remedy = f"write keras{resources.KERAS}"
            yield warning("requirement-clash", line.location, what, remedy)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]


def _argument_problems(trainer: Trainer, job: Job) -> Iterator[Problem]:
    """Yield arguments and tuned parameters that the parser of an unchanged trainer refuses."""
    if trainer.changed_task:
        return
    yield from trainer.problems
    for name, parameter in (job.tuning.parameters if job.tuning else {}).items():
        for values in _samples(parameter):
            where = f"tuning.parameters.{name}"
            refusals = [parse_arguments([f"--{name}={value}"], where)[1] for value in values]
            if all(refusals):
                yield from refusals[0]
                break


def _samples(parameter: RangeParameter | ChoiceParameter) -> Iterator[tuple[str, ...]]:
    """Yield values of a tuned parameter, each in the ways in which it may be written."""
    if not isinstance(parameter, RangeParameter):
        for value in parameter.values:
            yield _written(float(value)) if parameter.is_numeric else (value,)
        return
    low, high = parameter.minimum, parameter.maximum
    ends = [end for end in (low, high) if end > 0 or parameter.scale == "linear"]
    yield from map(_written, ends)
    if not parameter.is_integer and low < high:
        yield (repr(low + (high - low) / 7.3),)


def _written(number: float) -> tuple[str, ...]:
    return (str(int(number)), repr(number)) if number % 1 == 0 else (repr(number),)
