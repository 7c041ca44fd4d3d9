"""`distlaunch submit`: check, build, push, submit and follow the job to its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli import options
from distlaunch.cli.dashes import WithNameAndWords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.cli import Settings
    from distlaunch.console import Console
    from distlaunch.image.context import ContextFile
    from distlaunch.job.model import Job
    from distlaunch.launch import Plan
    from distlaunch.order import Order

MOST_FILES = 50  # that a dry run names
# Options of `distlaunch submit` that no trainer of ours has.
OURS = (
    "--cancel-on-interrupt",
    "--config",
    "--detach",
    "--dry-run",
    "--endpoint",
    "--image",
    "--json",
    "--new",
    "--no-check",
    "--project",
    "--region",
    "--set",
)


@click.command(
    "submit",
    cls=WithNameAndWords,
    short_help="Build, push, submit to Vertex AI and follow the job.",
)
@click.argument("name", metavar="[NAME] [-- ARGS...]", required=False)
@options.of_google
@options.assignments
@click.option(
    "--job-dir",
    metavar="GS",
    help="The job's folder, gs://… (a new one in the bucket, if not said).",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="AI Platform's or Vertex AI's config.yaml, in place of the cluster section.",
)
@click.option("--image", metavar="URI", help="An image that is there already; nothing is built.")
@click.option("--dry-run", is_flag=True, help="Show the plan and the request; send nothing.")
@click.option("--detach", is_flag=True, help="Leave when the job is submitted.")
@click.option("--no-check", is_flag=True, help="Leave out the last look at the whole request.")
@click.option(
    "--new", "is_new", is_flag=True, help="Start another, though one of the same was cut off."
)
@click.option(
    "--cancel-on-interrupt", is_flag=True, help="Ctrl-C cancels the job; otherwise it goes on."
)
@options.as_json
@click.pass_obj
def command(settings: Settings, /, **given: Any) -> int:
    """Check, build, push and submit the job of distlaunch.yaml, and follow it to its end.

    What stands after -- is given to the job's program behind its args. Ctrl-C leaves; the job goes
    on, and 'distlaunch logs --follow' comes back to it.

    \b
      distlaunch submit --dry-run
      distlaunch submit -- --epochs 20
      distlaunch submit --config config.yaml --region europe-west4
    """  # noqa: D301 - click wants the character that this is an escape for
    console = settings.console()
    order, notes = _order(**given)
    for note in notes:
        console.say(note, "warning")
    word = next(iter(given["words"]), "-")
    if not word.startswith("-"):
        text = f"{word!r} after '--' goes to the job's program, as an argument that is no option"
        console.say(text, "warning")
    return _submit(console, order, **given)


def _order(
    *,
    name: str | None,
    endpoint: str | None,
    project: str | None,
    region: str | None,
    assignments: tuple[str, ...],
    job_dir: str | None,
    config: Path | None,
    image: str | None,
    words: tuple[str, ...],
    **_: Any,
) -> tuple[Order, tuple[str, ...]]:
    """Return what is to be launched, and what reading it has to tell."""
    from distlaunch.job.formats import load_job
    from distlaunch.local.arguments import job_dir_in, refuse_ours
    from distlaunch.order import Order

    refuse_ours(words, OURS)
    folder = Path.cwd()
    loaded = load_job(
        folder, config=config, name=name, region=region, image=image, sets=assignments, args=words
    )
    job = _with_defaults(loaded.job, project)
    where = job_dir_in(words) or job_dir or job_dir_in(job.args)
    return Order(folder, job, _in_a_bucket(where), endpoint), loaded.notes


def _with_defaults(job: Job, project: str | None) -> Job:
    """Fill in the project and the region that gcloud or the credentials name."""
    from dataclasses import replace

    from distlaunch.google import defaults

    return replace(
        job,
        project=project or job.project or defaults.project_id(),
        region=job.region or defaults.region(),
    )


def _in_a_bucket(job_dir: str | None) -> str | None:
    from distlaunch.errors import UsageProblem

    if job_dir is None:
        return None
    if not job_dir.startswith("gs://") or not job_dir.strip("/").removeprefix("gs:").strip("/"):
        raise UsageProblem(f"--job-dir {job_dir}: expected gs://BUCKET/FOLDER")
    return job_dir.rstrip("/")


def _submit(
    console: Console,
    order: Order,
    *,
    dry_run: bool,
    no_check: bool,
    is_new: bool,
    detach: bool,
    cancel_on_interrupt: bool,
    as_json: bool,
    **_: Any,
) -> int:
    from distlaunch import launch
    from distlaunch.cli.launching import see_through
    from distlaunch.google.jobs import Jobs
    from distlaunch.google.session import connect
    from distlaunch.order import refuse_what_cannot_be
    from distlaunch.watch import Watch

    if dry_run:
        _show(console, launch.plan(order, check=not no_check))
        return 0
    job = order.job
    refuse_what_cannot_be(order)
    session = connect(order.endpoint, project=job.project, tell=console.say)
    jobs = Jobs(session, str(job.project), str(job.region))
    plan = launch.plan(order, check=not no_check)
    _tell(console, plan)
    launcher = launch.Launcher(order.folder, jobs, Watch(console, ["image"]).see)
    launched = launcher.launch(plan, console.progress, is_new=is_new)
    return see_through(
        console,
        launched,
        launcher,
        jobs,
        detach=detach,
        cancel_on_interrupt=cancel_on_interrupt,
        as_json=as_json,
    )


def _show(console: Console, plan: Plan) -> None:
    """Show what a submit would do: the request on stdout, all else on stderr."""
    _tell(console, plan)
    if plan.image and plan.image.context:
        console.say("\n".join(["what goes into the image:", *_listed(plan.image.context.files)]))
    console.say(f"job folder {plan.order.job_dir_of(plan.launch_id)}")
    console.say(f"dry run: nothing was sent; this would be posted to {plan.collection}:")
    console.result(json.dumps(plan.request, indent=2, ensure_ascii=False))


def _tell(console: Console, plan: Plan) -> None:
    job = plan.order.job
    console.say(f"{job.name}: {job.cluster.describe()} in {job.region}, project {job.project}")
    if plan.image is None:
        console.say(f"image {job.image.uri or 'of each pool'}: it is there already")
        return
    console.say(f"image {plan.image.uri or plan.image.reference}: {plan.image.reason}")
    report = plan.image.context and plan.image.context.report()
    if report:
        console.say(report, "warning")


def _listed(files: Sequence[ContextFile]) -> list[str]:
    """Return a line a file with its bytes, the first of many."""
    lines = [f"{file.size:>12,}  {file.path}" for file in files[:MOST_FILES]]
    more = len(files) - MOST_FILES
    return [*lines, f"and {more:,} more"] if more > 0 else lines
