"""`distlaunch build`: the job's image alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch.cli import options

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings
    from distlaunch.image.cloud_build import CloudBuild
    from distlaunch.job.model import Job
    from distlaunch.ui.console import Console


@click.command("build")
@click.option(
    "--no-push",
    is_flag=True,
    help="Leave the image in Docker; no registry has to have it.",
)
@options.overrides
@click.pass_obj
def command(settings: Settings, /, *, no_push: bool, overrides: tuple[str, ...]) -> int:
    """Build and push the image of distlaunch.yaml, and print it by its digest.

    Nothing is sent that the registry has. Docker is needed only for an environment that is not
    there yet, or a Dockerfile of your own; Cloud Build can build these in its place.

    \b
      distlaunch build
      distlaunch build --set image.builder=cloud-build
      docker run --rm $(distlaunch build --no-push) --help
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.checks.project import dockerfile
    from distlaunch.image import execute_plan, plan_image
    from distlaunch.image.plan import BuildStrategy
    from distlaunch.job.load import load_job
    from distlaunch.ui.progress_view import ProgressView

    console = settings.console()
    loaded = load_job(Path.cwd(), overrides=overrides)
    for note in loaded.notes:
        console.log(note, "warning")
    plan = plan_image(loaded.job, Path.cwd(), push=not no_push)
    console.log(f"{plan.reference}: {plan.reason}")
    for problem in dockerfile.image_problems(loaded.job, plan.inputs) if plan.inputs else ():
        console.log(problem.line, "warning")
    report = plan.context.report() if plan.context else None
    if report:
        console.log(report.line, "warning")
    view = ProgressView(console, ["image"])
    in_cloud = plan.strategy == BuildStrategy.CLOUD_BUILD
    cloud_build = _connect_cloud_build(loaded.job, console) if in_cloud else None
    image = execute_plan(
        plan, view.handle, push=not no_push, progress=console.progress, cloud_build=cloud_build
    )
    console.result(image)
    return 0


def _connect_cloud_build(job: Job, console: Console) -> CloudBuild:
    """Return the Cloud Build of a job; JobFileError is raised if a required setting is missing."""
    from distlaunch.checks.required_fields import raise_if_incomplete
    from distlaunch.engines.vertex.client import connect
    from distlaunch.image.cloud_build import CloudBuild
    from distlaunch.job.launch import LaunchRequest

    job = options.with_gcloud_defaults(job)
    raise_if_incomplete(LaunchRequest(Path.cwd(), job))
    return CloudBuild.of(job, connect(project=job.project, show_message=console.log))
