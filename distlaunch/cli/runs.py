"""`distlaunch show`, `diff`, `prune`, `tensorboard` and `fetch`: runs and jobs afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch.cli import completion, options, page
from distlaunch.cli.settings import confirm, draw, show, show_json
from distlaunch.errors import DistlaunchError, EngineError, UsageError
from distlaunch.paths import CHECKPOINTS, LOGS, MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlaunch.cli.settings import Settings
    from distlaunch.engines.api import Engine
    from distlaunch.runs.fetch import DownloadProgress
    from distlaunch.runs.view import RunView
    from distlaunch.submit.lookup import JobLocator

DEFAULT_KEEP = 10


def list_runs(settings: Settings, limit: int, *, as_json: bool) -> None:
    """Print the runs of this project on this machine."""
    from distlaunch.runs import display
    from distlaunch.runs.view import local_runs, with_disk_use

    runs = [with_disk_use(run) for run in local_runs(Path.cwd(), limit)]
    if as_json:
        show_json([run.as_json() | {"metrics": run.facts.metrics} for run in runs])
    elif runs:
        draw(display.listing(runs))
    else:
        settings.console().log("no local runs here; 'distlaunch local' makes one")


@click.command("show")
@options.with_locator
@click.argument("names", metavar="[RUN|JOB]...", nargs=-1, shell_complete=completion.runs_and_jobs)
@page.as_html
@page.output("run.html in the folder of a local run, JOB.html, runs.html for several")
@options.as_json
def show_run(
    _: Settings,
    locator: JobLocator,
    *,
    names: tuple[str, ...],
    as_html: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Show one run or job whole: state, configuration, code, metrics by epoch, step time.

    RUN is a local run's id or folder, JOB as for 'distlaunch status' (default: the newest run, or
    the newest job if it was submitted later). With --html it is written as a page with charts,
    several beside each other.
    """
    page.check_output(output, as_html=as_html)
    if as_html and as_json:
        raise UsageError("--html and --json: choose one")
    if len(names) > 1 and not as_html:
        raise UsageError("several are shown as a page: add --html, or run 'distlaunch diff A B'")
    views = [find(locator, name, whole=True)[0] for name in dict.fromkeys(names) or (None,)]
    if as_html:
        from distlaunch.runs import page as pages
        from distlaunch.runs.view import with_disk_use

        views = [with_disk_use(view) for view in views]
        path = output or pages.default_path(views)
        show(page.write_page(pages.build(views, path), path))
    else:
        show_view(views[0], as_json=as_json)


def show_view(view: RunView, *, as_json: bool) -> None:
    """Print all about a run or a job."""
    from distlaunch.runs import display
    from distlaunch.runs.view import with_disk_use
    from distlaunch.ui.console import columns_of

    view = with_disk_use(view)
    if as_json:
        show_json(view.as_json() | {"metrics": view.facts.metrics})
    else:
        draw(*display.whole(view, columns_of(1)))


@click.command("diff")
@options.with_locator
@click.argument("one", metavar="A", shell_complete=completion.runs_and_jobs)
@click.argument("other", metavar="B", shell_complete=completion.runs_and_jobs)
@options.as_json
def diff(settings: Settings, locator: JobLocator, *, one: str, other: str, as_json: bool) -> None:
    """Show what differs between two runs or jobs: configuration, code, data, metrics."""
    from distlaunch.runs import display

    first, second = find(locator, one)[0], find(locator, other)[0]
    found = display.differences(first, second)
    if as_json:
        rows = [{"name": name, "a": a, "b": b} for name, a, b in found]
        show_json({"a": first.id, "b": second.id, "differences": rows})
    elif found:
        draw(display.comparison(first, second))
    else:
        settings.console().log(f"{first.id} and {second.id} do not differ")


@click.command("prune")
@click.option(
    "--keep",
    metavar="N",
    type=click.IntRange(min=0),
    default=DEFAULT_KEEP,
    show_default=True,
    help="How many of the newest runs are kept.",
)
@click.option(
    "--older-than",
    metavar="AGE",
    type=options.parse_time,
    help="Only runs older than this, e.g. 12h or 30d.",
)
@click.option("--yes", "-y", "is_confirmed", is_flag=True, help="Do not prompt.")
@options.as_json
@click.pass_obj
def prune(
    settings: Settings, *, keep: int, older_than: float | None, is_confirmed: bool, as_json: bool
) -> None:
    """List old local runs and remove them; runs that still run are kept."""
    from distlaunch.runs import display, view
    from distlaunch.runs.prune import remove_run, runs_to_remove

    project = Path.cwd()
    listed = view.local_runs(project)
    for run in listed:
        if run.state == view.UNKNOWN:
            settings.console().log(f"{run.id}: {run.error}; remove {run.folder} yourself")
    old = runs_to_remove(listed, keep=keep, older_than=older_than)
    runs = [view.with_disk_use(run) for run in old]
    if runs and not as_json:
        draw(display.listing(runs))
    if runs and not is_confirmed:
        confirm(f"remove {_size_of(runs)}?", "remove them")
    removed = [run for run in runs if remove_run(project, run)]
    for run in runs:
        if run not in removed:
            settings.console().log(f"{run.id} was resumed meanwhile, and is kept", "warning")
    if as_json:
        freed = sum(run.bytes or 0 for run in removed)
        show_json({"removed": [run.id for run in removed], "bytes": freed})
    else:
        settings.console().log(f"removed {_size_of(removed)}" if removed else "no runs to remove")


@click.command("tensorboard")
@options.with_locator
@click.argument("names", metavar="[RUN|JOB]...", nargs=-1, shell_complete=completion.runs_and_jobs)
@click.option("--port", metavar="P", type=click.IntRange(0, 65535), default=6006, show_default=True)
def tensorboard(
    settings: Settings, locator: JobLocator, *, names: tuple[str, ...], port: int
) -> int:
    """Open TensorBoard on runs and jobs, side by side (default: the newest).

    Jobs are read from their gs:// folders with Google's default credentials. Ctrl-C ends it.
    """
    from distlaunch.runs.tensorboard import log_folder, run_tensorboard

    views = [find(locator, name) for name in names or (None,)]
    folders = {
        view.id: log_folder(view, engine.endpoint if engine else None) for view, engine in views
    }
    return run_tensorboard(folders, port, settings.console().log)


@click.command("fetch")
@options.with_locator
@click.argument(
    "name", metavar="[RUN|JOB]", required=False, shell_complete=completion.runs_and_jobs
)
@click.option(
    "--part",
    type=click.Choice(["all", MODEL, CHECKPOINTS, LOGS]),
    default=MODEL,
    show_default=True,
    help="Which folder of the job's.",
)
@click.option(
    "--output",
    metavar="D",
    type=click.Path(path_type=Path),
    help="Where to write (default: fetched/NAME).",
)
@options.as_json
def fetch(
    settings: Settings,
    locator: JobLocator,
    *,
    name: str | None,
    part: str,
    output: Path | None,
    as_json: bool,
) -> None:
    """Download the model, checkpoints or logs of a job; the same command again resumes.

    Without RUN or JOB it is the newest job, without jobs the newest local run. Checksums are
    verified. The files of a local run are copied.
    """
    from distlaunch import files
    from distlaunch.engines.vertex.engine import VertexEngine
    from distlaunch.runs import display
    from distlaunch.runs.fetch import copy_folder, fetch_folder
    from distlaunch.text import plural

    (view, engine), console = find(locator, name, is_job_first=True), settings.console()
    if view.job_dir is None:
        raise DistlaunchError(f"{view.id}: the job has no job folder")
    folder = view.job_dir.rstrip("/") + ("" if part == "all" else f"/{part}")
    target = output or _default_folder(view.id, part)
    if target.parts[:1] == ("fetched",):
        try:
            files.refuse_symlinks(target, below=Path())
        except OSError as error:
            raise DistlaunchError(f"{error}; remove it, or pass another --output DIR") from None
    if folder.startswith("gs://"):

        def on_progress(progress: DownloadProgress) -> None:
            console.progress(display.progress_bar(progress))

        engine = engine or locator.engine()
        if not isinstance(engine, VertexEngine):
            raise DistlaunchError(f"{folder}: a bucket is read with Vertex AI; add --engine vertex")
        fetched = fetch_folder(engine.session, folder, target, on_progress)
        console.progress("")
    else:
        fetched = copy_folder(Path(folder), target)
    if not fetched.files:
        raise DistlaunchError(f"{folder}: no files are there; {view.id} is {view.state}")
    if as_json:
        facts = {"id": view.id, "source": folder, "output": str(target)}
        show_json(facts | {"files": fetched.files, "new_bytes": fetched.new_bytes})
    else:
        show(f"{target}: {plural(fetched.files, 'file')}, {display.size(fetched.new_bytes)} new")
        model = (target / MODEL if part == "all" else target) / "model.keras"
        if part in ("all", MODEL) and model.is_file():
            console.log(f"next: keras.saving.load_model({json.dumps(model.as_posix())})")


def _default_folder(name: str, part: str) -> Path:
    """Return the folder for a part of a run, whose name may come from a server."""
    from distlaunch.files import is_file_name

    if not is_file_name(name):
        raise DistlaunchError(f"{name!r} is not the name of a folder; pass --output DIR")
    return Path("fetched", name, *(() if part == "all" else (part,)))


def find(
    locator: JobLocator, name: str | None, *, whole: bool = False, is_job_first: bool = False
) -> tuple[RunView, Engine | None]:
    """Return a local run or a job by name, by default the newest of this folder.

    That is the newest job if there is one and `is_job_first`. With a job comes its engine.
    """
    from distlaunch.local.run_folder import find_run
    from distlaunch.runs.view import local_runs, view_job, view_job_whole, view_run
    from distlaunch.submit.records import Records

    project = Path.cwd()
    records = Records(project)
    folder = find_run(project, name) if name else None
    run = view_run(folder) if folder else None
    if name is None:
        runs, record = local_runs(project, 1), records.find(None)
        if not runs and record is None:
            raise DistlaunchError("no local runs and no jobs here; 'distlaunch local' makes a run")
        is_run_newer = runs and (record is None or (runs[0].started or "") >= record.time)
        if is_run_newer and not (record and is_job_first):
            run = runs[0]
    if run:
        return run, None
    try:
        located = locator.find(name)
    except EngineError as error:
        if name is None or records.find(name):
            raise
        raise DistlaunchError(
            f"{name}: not a local run here ('distlaunch list --local'), and jobs cannot be looked "
            f"up: {error}"
        ) from error
    view = view_job_whole if whole else view_job
    return view(located.job, located.engine, located.commit), located.engine


def _size_of(runs: Sequence[RunView]) -> str:
    from distlaunch.runs import display
    from distlaunch.text import plural

    return f"{plural(len(runs), 'run')}, {display.size(sum(run.bytes or 0 for run in runs))}"
