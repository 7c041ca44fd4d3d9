"""Options and arguments that several commands have, declared once."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from distlaunch.cli import completion
from distlaunch.errors import UsageError
from distlaunch.platforms import require_posix

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from click.shell_completion import CompletionItem
    from typing_extensions import Self

    from distlaunch.cli.settings import Settings
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.model import Job
    from distlaunch.submit.lookup import JobLocator

_Command = TypeVar("_Command", bound="Callable[..., Any]")

ENDPOINT_VARIABLE = "DISTLAUNCH_ENDPOINT"

_FILE = click.Path(path_type=Path)
_HAS_DASHES = "distlaunch.has_dashes"
WORDS = "distlaunch.words"  # the words of a command that passes some of them to a program
_JOB_HELP = (
    "JOB is a launch id or a name, or Google's number or resource name (default: the newest job "
    "submitted from this directory)."
)
# Options that a program may have, too, so that they can be passed after '--'.
_PROGRAM_MAY_HAVE = frozenset({"--job-dir", "--resume", "--run", "--help", "--verbose"})

endpoint = click.option(
    "--endpoint",
    metavar="URL",
    envvar=ENDPOINT_VARIABLE,
    help=f"Send the calls to 'distlaunch emulator' at URL (default: {ENDPOINT_VARIABLE}).",
)
project = click.option(
    "--project", metavar="ID", help="Google Cloud project (default: distlaunch.yaml's or gcloud's)."
)
region = click.option(
    "--region", metavar="R", help="Region (default: distlaunch.yaml's or gcloud's)."
)
engine = click.option(
    "--engine",
    type=click.Choice(["vertex", "slurm"]),
    help="Where jobs run: Vertex AI or Slurm (default: distlaunch.yaml's).",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print only JSON on stdout.")
overrides = click.option(
    "--set",
    "overrides",
    metavar="FIELD=VALUE",
    multiple=True,
    shell_complete=completion.override_fields,
    help="Override a field of distlaunch.yaml, e.g. cluster.workers.count=7.",
)
devices = click.option(
    "--devices",
    metavar="D",
    type=click.IntRange(1, 64),
    help="Virtual CPU devices per task, each a replica, in place of GPUs.",
)
notify = click.option(
    "--notify",
    metavar="COMMAND|URL",
    help="Run a command at the end, or POST JSON to a URL (Slack, Google Chat and others).",
)
replace_retired = click.option(
    "--replace-retired",
    is_flag=True,
    help="Replace retired accelerators of --config FILE by the first of their replacements.",
)


def _check_amount(_: click.Context, __: click.Parameter, amount: float | None) -> float | None:
    if amount is not None and not math.isfinite(amount):
        raise click.BadParameter(f"{amount} is not an amount")
    return amount


max_cost = click.option(
    "--max-cost",
    metavar="AMOUNT",
    type=click.FloatRange(min=0, min_open=True),
    callback=_check_amount,
    help="Refuse a job that may cost more up to its timeout (default: scheduling.max_cost).",
)
_LAUNCH_OPTIONS = (
    click.option(
        "--job-dir",
        metavar="DIR",
        help="Job folder, gs://…, on Slurm a path (default: a new one).",
    ),
    click.option(
        "--config",
        metavar="FILE",
        type=_FILE,
        help="config.yaml of AI Platform or Vertex AI, in place of the cluster section.",
    ),
    replace_retired,
    click.option("--image", metavar="URI", help="Use an existing image; nothing is built."),
    click.option(
        "--catalogue",
        metavar="FILE",
        type=_FILE,
        help="Your additions to machines and regions (default: distlaunch.catalogue.yaml).",
    ),
    click.option(
        "--prices",
        metavar="FILE",
        type=_FILE,
        help="Your prices (default: distlaunch.prices.yaml).",
    ),
    max_cost,
    click.option(
        "--fit-timeout", is_flag=True, help="Shorten the timeout until the job costs no more."
    ),
)
_FOLLOW_OPTIONS = (
    click.option("--detach", is_flag=True, help="Exit when the job is submitted."),
    click.option(
        "--new",
        "is_new",
        is_flag=True,
        help="Start a new job even if an identical launch was interrupted.",
    ),
    click.option(
        "--cancel-on-interrupt",
        is_flag=True,
        help="Cancel the job on Ctrl-C (default: it keeps running).",
    ),
)


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """The values of `launch_options`."""

    name: str | None = None
    project: str | None = None
    region: str | None = None
    endpoint: str | None = None
    engine: str | None = None
    overrides: tuple[str, ...] = ()
    as_json: bool = False
    job_dir: str | None = None
    config: Path | None = None
    replace_retired: bool = False
    image: str | None = None
    catalogue: Path | None = None
    prices: Path | None = None
    max_cost: float | None = None
    fit_timeout: bool = False
    program_args: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return those among the values of a command."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})


class PassthroughCommand(click.Command):
    """A command that gets the words after ``--``, untouched, as the parameter `program_args`."""

    allow_extra_args = True
    # A program's own options are not parsed as the command's if the dashes are forgotten.
    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        dashes = args.index("--") if "--" in args else len(args)
        ctx.meta[WORDS] = tuple(args)
        rest = super().parse_args(ctx, args[:dashes])
        if rest and not ctx.resilient_parsing:
            raise click.UsageError(f"{rest[0]!r}: put programs and their arguments after '--'", ctx)
        ctx.params["program_args"] = tuple(args[dashes + 1 :])
        ctx.meta[_HAS_DASHES] = "--" in args
        return rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the command's options, but not those of the program after the dashes."""
        return [] if ctx.meta[_HAS_DASHES] else super().shell_complete(ctx, incomplete)


class NamedPassthroughCommand(PassthroughCommand):
    """The same for a command with an argument, which may be anywhere before the dashes."""

    allow_interspersed_args = True


def check_notify(notify: str | None, *, detach: bool) -> None:
    """Raise UsageError for a notification at the end of a job that is not followed."""
    if notify and detach:
        raise UsageError("--notify needs a job that is followed: leave out --detach")


def load_launch(options: LaunchOptions) -> tuple[LaunchRequest, list[str]]:
    """Read the job of `launch_options`; return what to launch, and notes to print as warnings."""
    from distlaunch.job.launch import LaunchRequest, job_dir_in, replace_job_dir
    from distlaunch.job.load import load_job

    words = options.program_args
    reject_launcher_options(words)
    if options.engine == "slurm":
        _reject_cloud_options(options)
    loaded = load_job(
        Path.cwd(),
        config=options.config,
        name=options.name,
        region=options.region,
        image=options.image,
        engine=options.engine,
        overrides=options.overrides,
        args=words,
        replace_retired=options.replace_retired,
    )
    job = loaded.job
    if job.is_on_slurm:
        require_posix("engine: slurm")
        _reject_cloud_options(options)
    else:
        job = with_gcloud_defaults(replace(job, project=options.project or job.project))
    job_dir = job_dir_in(words) or options.job_dir or job_dir_in(job.args)
    if job_dir:
        check = _check_shared_folder if job.is_on_slurm else _check_bucket_folder
        job_dir = check(job_dir)
    if job_dir and options.job_dir:
        job = replace_job_dir(job, job_dir)
    if options.max_cost is not None:
        job = replace(job, scheduling=replace(job.scheduling, max_cost=options.max_cost))
    cli_overrides = {
        "name": ("NAME", options.name),
        "region": ("--region", options.region),
        "project": ("--project", options.project),
        "image": ("--image", options.image),
        "engine": ("--engine", options.engine),
        "scheduling.max_cost": ("--max-cost", options.max_cost),
    }
    request = LaunchRequest(
        folder=Path.cwd(),
        job=job,
        job_dir=job_dir,
        endpoint=None if job.is_on_slurm else options.endpoint,
        catalogue=options.catalogue,
        config=options.config,
        overrides=options.overrides,
        cli_overrides={key: option for key, (option, value) in cli_overrides.items() if value},
        program_args=words,
    )
    notes = list(loaded.notes)
    if words and not words[0].startswith("-"):
        notes.append(f"{words[0]!r} after '--' is passed to the job's program as an argument")
    if options.fit_timeout:
        from distlaunch.price import fit_timeout

        request, note = fit_timeout(request, options.prices)
        notes += [note] if note else []
    return request, notes


def with_gcloud_defaults(job: Job) -> Job:
    """Return a job with gcloud's project and region where it has none."""
    from distlaunch.engines.vertex import auth

    project, region = job.project or auth.default_project(), job.region or auth.default_region()
    return replace(job, project=project, region=region)


def follow_options(command: _Command) -> _Command:
    """Give a command the options `is_new`, `detach` and `cancel_on_interrupt`."""
    return _with_options(command, _FOLLOW_OPTIONS)


def launch_options(command: _Command) -> _Command:
    """Give a command the argument and options that `load_launch` reads."""
    options = (project, region, endpoint, engine, overrides, as_json, *_LAUNCH_OPTIONS)
    argument = click.argument("name", metavar="[NAME] [-- ARGS...]", required=False)
    return argument(_with_options(command, options))


def with_locator(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for endpoint, project, region and engine.

    It is called with settings and what finds jobs there.
    """

    @click.pass_obj
    @wraps(command)
    def with_options(
        settings: Settings,
        /,
        *,
        endpoint: str | None,
        project: str | None,
        region: str | None,
        engine: str | None,
        **options: Any,
    ) -> Any:
        from distlaunch.submit.lookup import JobLocator

        log = settings.console().log
        locator = JobLocator(Path.cwd(), endpoint, project, region, engine, log)
        return command(settings, locator, **options)

    return _with_options(with_options, (project, region, endpoint, engine))


def with_job(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument JOB; it is called with settings and the `LocatedJob`."""

    @wraps(command)
    def with_located_job(
        settings: Settings, locator: JobLocator, *, job: str | None, **options: Any
    ) -> Any:
        return command(settings, locator.find(job), **options)

    with_located_job.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n{_JOB_HELP}"
    argument = click.argument(
        "job", metavar="[JOB]", required=False, shell_complete=completion.job_names
    )
    return argument(with_locator(with_located_job))


def parse_time(text: str) -> float:
    """Return the seconds since 1970 of a time, or of a duration before now."""
    from distlaunch.timestamps import parse_since

    try:
        return parse_since(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _with_options(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


def reject_launcher_options(program_args: Collection[str]) -> None:
    """Raise UsageError for an option of the running command that was passed to the program."""
    context = click.get_current_context()
    names = {option for parameter in context.command.params for option in parameter.opts}
    for word in program_args:
        name = word.partition("=")[0]
        if name in names - _PROGRAM_MAY_HAVE and name.startswith("--"):
            raise UsageError(
                f"{name} after '--' is passed to the program; put it before '--' "
                "(to pass it to the program, add it to args: in distlaunch.yaml)"
            )


def _reject_cloud_options(options: LaunchOptions) -> None:
    """Raise UsageError for options of Vertex AI alone."""
    cloud = {"--project": options.project, "--region": options.region, "--config": options.config}
    for name, value in cloud.items():
        if value:
            raise UsageError(f"{name} has no meaning with engine: slurm; remove it")


def _check_shared_folder(job_dir: str) -> str:
    if "://" in job_dir:
        raise UsageError(f"--job-dir {job_dir}: on Slurm it is a path that all nodes share")
    return str(Path(job_dir).expanduser().absolute())


def _check_bucket_folder(job_dir: str) -> str:
    bucket = job_dir.removeprefix("gs://").strip("/")
    if not job_dir.startswith("gs://") or not bucket:
        raise UsageError(f"--job-dir {job_dir}: expected gs://BUCKET/FOLDER")
    return job_dir.rstrip("/")
