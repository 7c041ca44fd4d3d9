"""`distlaunch local`: run the job's cluster on this machine."""

from __future__ import annotations

import json
import shlex
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli import completion, options
from distlaunch.cli.page import log_page
from distlaunch.errors import EXIT_ERROR, STOPPED_CODES, UsageError
from distlaunch.paths import LOGS
from distlaunch.platforms import require_posix
from distlaunch.text import next_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.checks.project.fit_calls import PythonProgram
    from distlaunch.cli.settings import Settings
    from distlaunch.job.model import Job
    from distlaunch.local.run_plan import RunSpec, TaskProgram
    from distlaunch.local.runner import Outcome
    from distlaunch.ui.console import Console
    from distlaunch.ui.progress_view import ProgressView

NEWEST = ""  # the value of --resume without a job


@click.command(
    "local",
    cls=options.PassthroughCommand,
    options_metavar="[OPTIONS] [-- ARGS | PROGRAM...]",
)
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1),
    help="Total number of training tasks, including the chief (default: distlaunch.yaml's).",
)
@click.option(
    "--job-dir", metavar="D", help="Job folder (default: a new one in .distlaunch/local)."
)
@click.option(
    "--resume",
    metavar="[JOB]",
    is_flag=False,
    flag_value=NEWEST,
    shell_complete=completion.run_ids,
    help="Resume a run, by its id or path (default: the newest that has checkpoints).",
)
@click.option(
    "--restarts",
    metavar="K",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="How many times to restart all tasks after a failure.",
)
@click.option(
    "--kill",
    metavar="TASK@WHEN",
    multiple=True,
    shell_complete=completion.local_tasks,
    help="Kill a task, e.g. worker:0@step=40 or worker:0@5s.",
)
@click.option(
    "--freeze",
    metavar="TASK@WHEN",
    multiple=True,
    shell_complete=completion.local_tasks,
    help="Freeze a task, likewise.",
)
@click.option(
    "--debug-task",
    metavar="TASK",
    help="Have a task wait for a debugger (debugpy) before its program runs.",
)
@options.devices
@click.option("--audit", is_flag=True, help="Verify that each epoch has each example exactly once.")
@click.option(
    "--shared-folder",
    "shares_folder",
    is_flag=True,
    help="Run all tasks of a script in this folder (default: workers get copies of it).",
)
@options.overrides
@click.option("--docker", is_flag=True, help="Run the job's image, a container per task.")
@options.notify
@options.as_json
@click.pass_obj
def command(
    settings: Settings,
    /,
    *,
    kill: tuple[str, ...],
    freeze: tuple[str, ...],
    overrides: tuple[str, ...],
    docker: bool,
    notify: str | None,
    as_json: bool,
    program_args: tuple[str, ...],
    **fields: Any,
) -> int:
    """Run the cluster of distlaunch.yaml on this machine, a process per task.

    The arguments after -- are appended to the args of the job's module. If the first one has no
    leading dash, it is a program that each task runs instead.

    \b
      distlaunch local --workers 3 -- --epochs 3
      distlaunch local --workers 2 -- python anything.py
      distlaunch local --kill worker:0@step=40 --restarts 1
    """  # noqa: D301 - click wants the character that this is an escape for
    require_posix("'distlaunch local'")
    from distlaunch.local import run_plan
    from distlaunch.notify import Ending, notify_at_end

    console, project = settings.console(), Path.cwd()
    run_options = run_plan.RunOptions(
        words=program_args,
        faults=(
            *(run_plan.Fault.parse("kill", text) for text in kill),
            *(run_plan.Fault.parse("freeze", text) for text in freeze),
        ),
        is_contained=docker,
        is_debug=settings.debug,
        **fields,  # the options that have the name of a field
    )
    if not run_plan.is_program(program_args):
        options.reject_launcher_options(program_args)

    def check(job: Job) -> None:
        check_here(console, replace(job, tuning=None), program_args, overrides)

    job = run_plan.load_project_job(project, overrides)
    spec = run_plan.plan_run(project, job, run_options, check)
    if docker:
        spec = replace(spec, program=_container(job, spec.program, console))
    ending = Ending(spec.folder.id, spec.folder.job_dir)
    with spec.folder.lock(), notify_at_end(notify, ending, console.log):
        ending.code = _run(console, spec, job, as_json=as_json)
    return ending.code


def _run(console: Console, spec: RunSpec, job: Job | None, *, as_json: bool) -> int:
    """Run the job, show its events and return the exit code."""
    from distlaunch.checks.project.fit_calls import FIT_ALONE
    from distlaunch.events import Notice
    from distlaunch.local.host_resources import this_machine
    from distlaunch.local.runner import Outcome, Runner
    from distlaunch.runs import page
    from distlaunch.runs.record import end_record, start_record
    from distlaunch.runs.view import view_run
    from distlaunch.ui.progress_view import JsonProgressView, ProgressView

    folder = spec.folder
    before = folder.summary_version()
    tasks = [str(task) for task in spec.cluster.tasks()]
    with (JsonProgressView if as_json else ProgressView)(console, tasks) as view:
        machine = this_machine(spec.env).describe()
        cluster = f"{spec.cluster.describe()} on this machine ({machine})"
        view.handle(Notice(f"{cluster} · job folder {folder.job_dir}"))
        alone = _program_of_one_task(spec)
        if alone and (call := alone.fit_call()):
            view.handle(Notice(f"{call}: {FIT_ALONE}; {_remedy(alone)}", "warning"))
        run = None
        with _record_errors(view):
            run = start_record(spec, job, machine)
        outcome = Outcome(EXIT_ERROR)
        try:
            outcome = Runner(spec, view).run()
        finally:
            if run:
                with _record_errors(view):
                    end_record(run, folder, outcome.code, outcome.failure)
        if outcome.code == 0:
            if alone and not outcome.has_cluster:
                count = sum(task.is_training for task in spec.cluster.tasks())
                text = f"no task listened at its address of TF_CONFIG: {count} tasks ran apart"
                view.handle(
                    Notice(f"{text}, each with a model of its own; {_remedy(alone)}", "warning")
                )
            summary = folder.summary() if folder.summary_version() != before else None
            with suppress(BrokenPipeError):  # the job has succeeded, even if stdout is closed
                view.summarise(summary, logs=str(folder.task_logs))
        if run and outcome.code not in STOPPED_CODES:
            path = folder.path / page.FILE_NAME
            log_page(console, page.build([view_run(folder)], path), path, is_private=True)
        code = _audit(outcome, view, as_json=as_json) if spec.options.audit else outcome.code
        if text := _next_steps(spec, code, run.command if run else ("distlaunch", "local")):
            view.handle(Notice(text))
        return code


def _next_steps(spec: RunSpec, code: int, command: tuple[str, ...]) -> str:
    """Return the line of what may be done with a run that has ended, empty for other programs."""
    folder = spec.folder
    if code in STOPPED_CODES and folder.has_checkpoints():
        is_again = spec.options.resume is not None or spec.options.job_dir is not None
        place = command.index("local") + 1
        words = [*command[:place], *([] if is_again else ["--resume"]), *command[place:]]
        return f"resume with: {shlex.join(words)}"
    if code or not folder.summary():
        return ""
    can = {"tensorboard": (folder.path / LOGS).is_dir(), "submit": spec.program.kind != "command"}
    return next_steps(["show", *filter(can.get, can)])


@contextmanager
def _record_errors(view: ProgressView) -> Iterator[None]:
    """Report that a run's record cannot be written; the run is more important."""
    from distlaunch.errors import os_reason
    from distlaunch.events import Notice

    try:
        yield
    except OSError as error:
        text = f"the run has no record ({os_reason(error)}), so 'list' and 'prune' do not know it"
        view.handle(Notice(text, "warning"))


def _program_of_one_task(spec: RunSpec) -> PythonProgram | None:
    """Return the program of several tasks if it does not use the trainer package."""
    from distlaunch.checks.project.fit_calls import PythonProgram
    from distlaunch.job.model import FIT_MODULE

    if sum(task.is_training for task in spec.cluster.tasks()) < 2:
        return None
    kind, words = spec.program.kind, spec.program.words
    if kind == "command":
        return PythonProgram.of_words(spec.work_dir, words)
    if kind == "module" and words[0] != FIT_MODULE:
        return PythonProgram.of_module(spec.work_dir, words[0])
    return None


def _remedy(program: PythonProgram) -> str:
    return f"'{program.remedy}' in distlaunch.yaml trains one model on all tasks"


def _audit(outcome: Outcome, view: ProgressView, *, as_json: bool) -> int:
    """Show the result of the audit and return the exit code."""
    from distlaunch.events import Notice
    from distlaunch.local.audit import audit

    if outcome.code:
        view.handle(Notice("audit: not verified, because the job failed", "warning"))
        return outcome.code
    finding = audit(outcome.event_files)
    for problem in finding.problems:
        view.handle(Notice(problem, "error"))
    text = finding.text
    if as_json:
        text = json.dumps({"event": "audit", "text": text, "problems": list(finding.problems)})
    if text:
        with suppress(BrokenPipeError):
            view.console.result(text)
    return EXIT_ERROR if finding.problems else 0


def _container(job: Job | None, program: TaskProgram, console: Console) -> TaskProgram:
    """Return the job's image as a program; it is built if Docker does not have it."""
    from distlaunch import image
    from distlaunch.engines.vertex import auth
    from distlaunch.local.run_plan import TaskProgram
    from distlaunch.ui.progress_view import ProgressView

    if job is None or program.kind != "module":
        raise UsageError("--docker runs the job's image: leave out the program after '--'")
    plan = image.plan_image(job, Path.cwd(), push=False)
    see = ProgressView(console, ["image"]).handle
    uri = image.execute_plan(plan, see, push=False, progress=console.progress)
    file = auth.credentials_file()
    credentials = str(Path(file).absolute()) if file and Path(file).is_file() else None
    return TaskProgram("image", (uri, *program.words[1:]), credentials)


def check_here(console: Console, job: Job, words: Sequence[str], overrides: Sequence[str]) -> bool:
    """Check a project's code before it runs here; return whether the trainer package trains."""
    from distlaunch.checks.local_run import check_project
    from distlaunch.checks.problem import more_about
    from distlaunch.job.launch import LaunchRequest

    job = replace(job, args=(*job.args, *words))
    launch = LaunchRequest(Path.cwd(), job, overrides=tuple(overrides), program_args=tuple(words))
    problems, is_trainer = check_project(launch)
    for problem in problems:
        console.log(f"{problem.line} [{problem.code}]", problem.severity)
    if problems:
        console.log(more_about(problems))
    return is_trainer
