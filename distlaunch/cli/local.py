"""`distlaunch local`: run the job's cluster on this machine."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli import completion, options
from distlaunch.errors import EXIT_ERROR, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.project.fit_calls import PythonProgram
    from distlaunch.cli.settings import Settings
    from distlaunch.job.model import Job
    from distlaunch.local.run_folder import RunFolder
    from distlaunch.local.run_spec import Command, Container, Module, RunSpec
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
    "--devices",
    metavar="D",
    type=click.IntRange(1, 64),
    help="Virtual CPU devices per task, each a replica, in place of GPUs.",
)
@click.option(
    "--compare",
    metavar="N,M,…",
    help="Run the same work on these numbers of workers, or on fit,trainer, and compare the speed.",
)
@click.option(
    "--batch-sizes",
    metavar="B,C,…",
    help="Compare these global batches (rows of a step over all workers).",
)
@click.option(
    "--rounds",
    metavar="R",
    type=click.IntRange(1),
    help="Runs of each variant of a comparison (default: 2).",
)
@click.option("--audit", is_flag=True, help="Verify that each epoch has each example exactly once.")
@options.overrides
@click.option("--docker", is_flag=True, help="Run the job's image, a container per task.")
@options.notify
@options.as_json
@click.pass_obj
def command(settings: Settings, /, **values: Any) -> int:
    """Run the cluster of distlaunch.yaml on this machine, a process per task.

    The arguments after -- are appended to the args of the job's module. If the first one has no
    leading dash, it is a program that each task runs instead.

    \b
      distlaunch local --workers 3 -- --epochs 3
      distlaunch local --workers 2 -- python anything.py
      distlaunch local --kill worker:0@step=40 --restarts 1
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.notify import Ending, notify_at_end

    local_options = SimpleNamespace(**values)
    console = settings.console()
    if local_options.compare is not None or local_options.batch_sizes is not None:
        from distlaunch.cli.compare import compare

        env = _option_variables(local_options.devices, debug=settings.debug)
        return compare(console, local_options, env=env)
    if local_options.rounds:
        raise UsageError("--rounds needs --compare or --batch-sizes")
    spec, folder, job = _plan(console, local_options, debug=settings.debug)
    ending = Ending(folder.id, folder.job_dir)
    with folder.lock(), notify_at_end(local_options.notify, ending, console.log):
        ending.code = _run(console, spec, folder, job, as_json=local_options.as_json)
    return ending.code


def _run(
    console: Console, spec: RunSpec, folder: RunFolder, job: Job | None, *, as_json: bool
) -> int:
    """Run the job, show its events and return the exit code."""
    from distlaunch.checks.project.fit_calls import FIT_ALONE
    from distlaunch.events import Notice
    from distlaunch.local.host_resources import this_machine
    from distlaunch.local.runner import Runner
    from distlaunch.runs.record import end_record, start_record
    from distlaunch.ui.progress_view import JsonProgressView, ProgressView

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
        code = EXIT_ERROR
        try:
            outcome = Runner(spec, view).run()
            code = outcome.code
        finally:
            if run:
                with _record_errors(view):
                    end_record(run, folder, code)
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
        return _audit(outcome, view, as_json=as_json) if spec.audit else outcome.code


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
    from distlaunch.local.run_spec import Command, Module

    if sum(task.is_training for task in spec.cluster.tasks()) < 2:
        return None
    match spec.program:
        case Module(name) if name != FIT_MODULE:
            return PythonProgram.of_module(spec.work_dir, name)
        case Command(words):
            return PythonProgram.of_words(spec.work_dir, words)
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


def _plan(
    console: Console, values: SimpleNamespace, *, debug: bool
) -> tuple[RunSpec, RunFolder, Job | None]:
    """Return what to run, its job folder, and the job of the job file."""
    from distlaunch.job.launch import job_dir_in
    from distlaunch.local.run_folder import choose
    from distlaunch.local.run_plan import load_project_job, local_cluster, require_tensorflow
    from distlaunch.local.run_spec import (
        Fault,
        Module,
        RunSpec,
        check_faults,
        is_program,
        parse_program,
    )

    project = Path.cwd()
    words = values.program_args
    faults = tuple(
        [Fault.parse("kill", text) for text in values.kill]
        + [Fault.parse("freeze", text) for text in values.freeze]
    )
    if not is_program(words):
        options.reject_launcher_options(words)
    job = load_project_job(project, values.overrides)
    in_words = job_dir_in(words)
    before_dashes = None if in_words else values.job_dir or values.resume or None
    program = parse_program(job, words, before_dashes)
    cluster = local_cluster(job, values.workers)
    check_faults(faults, cluster.tasks())
    if job and isinstance(program, Module) and not values.docker:
        require_tensorflow()
        options.check_here(console, replace(job, tuning=None), words, values.overrides)
    in_file = job_dir_in(job.args) if job and isinstance(program, Module) else None
    folder = choose(project, values.resume, in_words or values.job_dir, in_file)
    spec = RunSpec(
        folder=folder,
        cluster=cluster,
        program=_container(job, program, console) if values.docker else program,
        work_dir=project,
        env={**(job.env if job else {}), **_option_variables(values.devices, debug=debug)},
        restarts=values.restarts,
        faults=faults,
        audit=values.audit,
    )
    return spec, folder, job


def _option_variables(devices: int | None, *, debug: bool) -> dict[str, str]:
    """Return the variables that pass options on to the tasks."""
    variables = {"DISTLAUNCH_DEBUG": "1"} if debug else {}
    if devices:
        variables |= {"DISTLAUNCH_DEVICES": str(devices), "CUDA_VISIBLE_DEVICES": "-1"}
    return variables


def _container(job: Job | None, program: Module | Command, console: Console) -> Container:
    """Return the job's image as a program; it is built if Docker does not have it."""
    from distlaunch import image
    from distlaunch.local.run_spec import Container, Module
    from distlaunch.ui.progress_view import ProgressView

    if job is None or not isinstance(program, Module):
        raise UsageError("--docker runs the job's image: leave out the program after '--'")
    plan = image.plan_image(job, Path.cwd(), push=False)
    see = ProgressView(console, ["image"]).handle
    uri = image.execute_plan(plan, see, push=False, progress=console.progress)
    return Container(uri, program.args)
