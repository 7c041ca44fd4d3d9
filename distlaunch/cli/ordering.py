"""What `submit` and `check` are asked alike: which job, where, and from which files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from distlaunch.cli import options

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlaunch.job.model import Job
    from distlaunch.submit.plan import LaunchRequest

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_FILE = click.Path(path_type=Path)

# Options of ours that no trainer of ours has.
OURS = (
    "--cancel-on-interrupt",
    "--catalogue",
    "--compare-machines",
    "--config",
    "--detach",
    "--dry-run",
    "--endpoint",
    "--image",
    "--json",
    "--new",
    "--no-check",
    "--offline",
    "--prices",
    "--replace-retired",
    "--project",
    "--region",
    "--set",
)
_OPTION = {"name": "NAME", "region": "--region", "project": "--project", "image": "--image"}
_OPTIONS = (
    click.option(
        "--job-dir",
        metavar="GS",
        help="The job's folder, gs://… (a new one in the bucket, if not said).",
    ),
    click.option(
        "--config",
        metavar="FILE",
        type=_FILE,
        help="AI Platform's or Vertex AI's config.yaml, in place of the cluster section.",
    ),
    click.option(
        "--replace-retired",
        is_flag=True,
        help="Replace retired accelerators of --config FILE by the first of their replacements.",
    ),
    click.option("--image", metavar="URI", help="An image that is there already."),
    click.option(
        "--catalogue",
        metavar="FILE",
        type=_FILE,
        help="What you know of machines and regions (distlaunch.catalogue.yaml, if not said).",
    ),
    click.option(
        "--prices",
        metavar="FILE",
        type=_FILE,
        help="Prices of your own (distlaunch.prices.yaml, if not said).",
    ),
)


def of_an_order(command: _Command) -> _Command:
    """Give a command the options that say what is to be launched."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return options.of_google(options.assignments(command))


def order_of(
    *,
    name: str | None,
    endpoint: str | None,
    project: str | None,
    region: str | None,
    assignments: tuple[str, ...],
    job_dir: str | None,
    config: Path | None,
    image: str | None,
    replace_retired: bool,
    words: tuple[str, ...],
    **_: Any,
) -> tuple[LaunchRequest, tuple[str, ...]]:
    """Return what is to be launched, and what reading it has to tell."""
    from distlaunch.job.job_dir import job_dir_in, replace_job_dir
    from distlaunch.job.load import load_job
    from distlaunch.local.arguments import refuse_ours
    from distlaunch.submit.plan import LaunchRequest

    refuse_ours(words, OURS)
    folder = Path.cwd()
    loaded = load_job(
        folder,
        config=config,
        name=name,
        region=region,
        image=image,
        overrides=assignments,
        args=words,
        replace_retired=replace_retired,
    )
    job = _with_defaults(loaded.job, project)
    where = _in_a_bucket(job_dir_in(words) or job_dir or job_dir_in(job.args))
    if where and job_dir:
        job = replace_job_dir(job, where)
    given = {"name": name, "region": region, "project": project, "image": image}
    said = {key: _OPTION[key] for key, value in given.items() if value is not None}
    order = LaunchRequest(folder, job, where, endpoint, config, assignments, said, words)
    return order, (*loaded.notes, *_odd(words))


def _odd(words: tuple[str, ...]) -> tuple[str, ...]:
    """Tell of a word behind the dashes that looks like a program."""
    word = next(iter(words), "-")
    if word.startswith("-"):
        return ()
    return (f"{word!r} after '--' goes to the job's program, as an argument that is no option",)


def _with_defaults(job: Job, project: str | None) -> Job:
    """Fill in the project and the region that gcloud or the credentials name."""
    from dataclasses import replace

    from distlaunch.google import auth

    return replace(
        job,
        project=project or job.project or auth.default_project(),
        region=job.region or auth.default_region(),
    )


def _in_a_bucket(job_dir: str | None) -> str | None:
    from distlaunch.errors import UsageError

    if job_dir is None:
        return None
    if not job_dir.startswith("gs://") or not job_dir.strip("/").removeprefix("gs:").strip("/"):
        raise UsageError(f"--job-dir {job_dir}: expected gs://BUCKET/FOLDER")
    return job_dir.rstrip("/")
