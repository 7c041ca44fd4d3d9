"""`distlaunch local`: run the job's cluster on this machine."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli import options
from distlaunch.cli.dashes import WithWordsAfterDashes

if TYPE_CHECKING:
    from distlaunch.cli import Settings
    from distlaunch.job.model import Cluster, Job
    from distlaunch.local.job_folder import JobFolder
    from distlaunch.local.run_spec import Command, Container, LocalOrder, Module
    from distlaunch.local.runner import Outcome
    from distlaunch.ui.console import Console
    from distlaunch.ui.progress_view import ProgressView

MOST_TASKS = 1_000
_TOO_MANY = f"expected no more than {MOST_TASKS:,} tasks on one machine"
NEWEST = ""  # what --resume means without a value


@click.command(
    "local",
    cls=WithWordsAfterDashes,
    short_help="Run the job's cluster on this machine.",
    options_metavar="[OPTIONS] [-- ARGS | PROGRAM...]",
)
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(min=1),
    help="Training tasks in all, the chief among them, whatever distlaunch.yaml says.",
)
@click.option(
    "--job-dir", metavar="D", help="The job's folder (a new one in .distlaunch/local, if not said)."
)
@click.option(
    "--resume",
    metavar="[JOB]",
    is_flag=False,
    flag_value=NEWEST,
    help="Go on with a job, by its id or path; if not said, with the newest that has checkpoints.",
)
@click.option(
    "--restarts",
    metavar="K",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How many times to start the whole group again after a failure.",
)
@click.option("--kill", metavar="TASK@WHEN", multiple=True, help="Kill a task at step=N or at 5s.")
@click.option("--freeze", metavar="TASK@WHEN", multiple=True, help="Freeze a task likewise.")
@click.option(
    "--audit", is_flag=True, help="Prove that each example is seen exactly once in each epoch."
)
@options.assignments
@click.option("--docker", is_flag=True, help="Run the job's image, a container a task.")
@click.pass_obj
def command(settings: Settings, /, **given: Any) -> int:
    """Run the cluster of distlaunch.yaml on this machine, one process a task.

    What stands after -- is given to the job's module behind its args; if it begins with a word
    without a dash it is a program of its own, and each task runs that.

    \b
      distlaunch local --workers 3 -- --epochs 3
      distlaunch local --workers 2 -- python anything.py
      distlaunch local --kill worker:0@step=40 --restarts 1
    """  # noqa: D301 - click wants the character that this is an escape for
    _need_processes()

    console = settings.console()
    order, folder = _order(console, debug=settings.debug, **given)
    with folder.held():
        return _run(console, order, folder)


def _run(console: Console, order: LocalOrder, folder: JobFolder) -> int:
    """Run the job, show it and return the exit code."""
    from distlaunch.checks.data import record
    from distlaunch.local import run
    from distlaunch.local.host_resources import this_machine
    from distlaunch.local.run_spec import Module
    from distlaunch.ui.events import Notice
    from distlaunch.ui.progress_view import ProgressView

    before = folder.summary_version()
    with ProgressView(console, [str(task) for task in order.cluster.tasks()]) as watch:
        machine = this_machine(order.env).describe()
        where = f"{order.cluster.describe()} on this machine ({machine})"
        watch.handle(Notice(f"{where} · job folder {folder.job_dir}"))
        outcome = run(order, watch)
        if outcome.code == 0:
            summary = folder.summary() if folder.summary_version() != before else None
            if summary and isinstance(order.program, Module):
                record.save(order.work_dir, order.program.name, summary)
            with suppress(BrokenPipeError):  # a job that is done is done, whoever reads of it
                watch.summarise(summary, logs=str(folder.logs_dir))
        return _audited(outcome, watch) if order.audit else outcome.code


def _audited(outcome: Outcome, watch: ProgressView) -> int:
    """Show what was proved of the examples and return the exit code."""
    from distlaunch.local.audit import audit
    from distlaunch.ui.events import Notice

    if outcome.code:
        watch.handle(Notice("audit: nothing was proved, as the job did not end well", "warning"))
        return outcome.code
    finding = audit(outcome.event_files)
    for problem in finding.problems:
        watch.handle(Notice(problem, "error"))
    if finding.text:
        with suppress(BrokenPipeError):  # what was found is found, whoever reads of it
            watch.result(finding.text)
    return 1 if finding.problems else 0


def _order(
    console: Console,
    *,
    debug: bool,
    workers: int | None,
    job_dir: str | None,
    resume: str | None,
    restarts: int,
    kill: tuple[str, ...],
    freeze: tuple[str, ...],
    audit: bool,
    docker: bool,
    assignments: tuple[str, ...],
    words: tuple[str, ...],
) -> tuple[LocalOrder, JobFolder]:
    from distlaunch.job.job_dir import job_dir_in
    from distlaunch.local import arguments
    from distlaunch.local.faults import Fault, check_faults
    from distlaunch.local.job_folder import choose
    from distlaunch.local.run_spec import LocalOrder, Module

    project = Path.cwd()
    faults = tuple(
        [Fault.parse("kill", text) for text in kill]
        + [Fault.parse("freeze", text) for text in freeze]
    )
    job = _job(project, assignments)
    said_after = job_dir_in(words)
    program = arguments.program(job, words, None if said_after else job_dir or resume or None)
    cluster = _cluster(job, workers)
    check_faults(faults, cluster.tasks())
    if isinstance(program, Module) and not docker:
        _need_tensorflow()
    said_in_file = job_dir_in(job.args) if job and isinstance(program, Module) else None
    folder = choose(project, resume, said_after or job_dir, said_in_file)
    order = LocalOrder(
        name=job.name if job else project.name,
        job_id=folder.job_id,
        cluster=cluster,
        program=_contained(job, program, console) if docker else program,
        work_dir=project,
        job_dir=folder.job_dir,
        logs_dir=folder.logs_dir,
        env={**(job.env if job else {}), **({"DISTLAUNCH_DEBUG": "1"} if debug else {})},
        restarts=restarts,
        faults=faults,
        audit=audit,
    )
    return order, folder


def _contained(job: Job | None, program: Module | Command, console: Console) -> Container:
    """Return the job's image as a program; it is built where the engine does not have it."""
    from distlaunch import image
    from distlaunch.errors import UsageError
    from distlaunch.local.run_spec import Container, Module
    from distlaunch.render.templates import recipe
    from distlaunch.ui.progress_view import ProgressView

    if job is None or not isinstance(program, Module):
        raise UsageError("--docker runs the job's image: leave out the program after '--'")
    plan = image.plan_image(job, Path.cwd(), recipe, push=False)
    see = ProgressView(console, ["image"]).handle
    built = image.execute_plan(plan, see, push=False, progress=console.progress)
    return Container(built.uri, program.args)


def _job(project: Path, assignments: tuple[str, ...]) -> Job | None:
    """Return the project's job, or None where there is no job file."""
    from distlaunch.job.load import FILE_NAME, load_job_file
    from distlaunch.job.overrides import Override

    path = project / FILE_NAME
    if not (path.exists() or path.is_symlink() or assignments):
        return None
    return load_job_file(path, [Override.parse(text) for text in assignments])


def _cluster(job: Job | None, workers: int | None) -> Cluster:
    from distlaunch.errors import DistlaunchError, UsageError
    from distlaunch.job.model import Cluster, Machine, Pool

    if job is None and workers is None:
        raise UsageError("no distlaunch.yaml here: say with --workers N how many tasks there are")
    if workers and workers > MOST_TASKS:
        raise UsageError(f"--workers {workers}: {_TOO_MANY}")
    cluster = job.cluster if job else Cluster(Pool(Machine("local")))
    cluster = cluster.with_training_tasks(workers) if workers else cluster
    if cluster.task_count > MOST_TASKS:
        raise DistlaunchError(
            f"distlaunch.yaml: cluster: {cluster.task_count:,} tasks in all; {_TOO_MANY}"
        )
    return cluster


def _need_processes() -> None:
    from distlaunch.errors import DistlaunchError

    if sys.platform == "win32":
        raise DistlaunchError("'distlaunch local' needs Linux or macOS; on Windows use WSL")


def _need_tensorflow() -> None:
    from importlib.util import find_spec

    from distlaunch.errors import DistlaunchError

    if find_spec("tensorflow") is None:
        raise DistlaunchError(
            "TensorFlow is not installed here; pip install 'distlaunch[local]' brings it"
        )
