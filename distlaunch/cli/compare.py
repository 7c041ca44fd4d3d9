"""`distlaunch compare`: the same work on several clusters of this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch.cli import options
from distlaunch.cli.local import check_here
from distlaunch.cli.page import log_page
from distlaunch.errors import EXIT_ERROR, EXIT_INTERRUPTED, DistlaunchError, os_reason
from distlaunch.files import atomic_write
from distlaunch.paths import COMPARISONS
from distlaunch.platforms import require_posix

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings
    from distlaunch.local.compare.rounds import Comparison
    from distlaunch.ui.console import Console


@click.command("compare", cls=options.NamedPassthroughCommand)
@click.argument("tasks", metavar="[TASKS] [-- ARGS | PROGRAM...]", required=False)
@click.option(
    "--batch-sizes",
    metavar="B,C,…",
    help="Compare these global batches (rows of a step over all workers).",
)
@click.option(
    "--rounds",
    metavar="R",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Runs of each variant, in turn.",
)
@options.devices
@options.overrides
@options.as_json
@click.pass_obj
def command(
    settings: Settings,
    /,
    *,
    tasks: str | None,
    batch_sizes: str | None,
    rounds: int,
    devices: int | None,
    overrides: tuple[str, ...],
    as_json: bool,
    program_args: tuple[str, ...],
) -> int:
    """Measure whether more tasks pay: run the same work on each of TASKS and compare the speed.

    TASKS are numbers of workers, including the chief (default: the number of distlaunch.yaml, with
    --batch-sizes). What is after -- is as for 'distlaunch local'.

    \b
      distlaunch compare 1,2,4 -- --epochs 3
      distlaunch compare --batch-sizes 64,256
    """  # noqa: D301 - click wants the character that this is an escape for
    require_posix("'distlaunch compare'")
    from distlaunch.local.compare.rounds import Rounds
    from distlaunch.local.compare.variants import plan_variants
    from distlaunch.local.run_folder import create_numbered
    from distlaunch.local.run_plan import RunOptions, is_program, load_project_job

    console, project = settings.console(), Path.cwd()
    if not is_program(program_args):
        options.reject_launcher_options(program_args)
    job = load_project_job(project, overrides)
    if job and not is_program(program_args):
        check_here(console, replace(job, tuning=None), program_args, overrides)
    variants = plan_variants(job, program_args, tasks, batch_sizes)
    folder = create_numbered(project, COMPARISONS)
    run_options = RunOptions(devices=devices, is_debug=settings.debug)
    runs = Rounds(project, job, variants, folder=folder, console=console, options=run_options)
    console.log(f"{runs.describe()} · {folder}")
    batches = {each.global_batch for each in variants} - {None}
    if len(batches) == 1:
        console.log(f"global batch {batches.pop()} in all variants")
    comparison = runs.run(rounds)
    _report(console, comparison, as_json=as_json)
    if comparison.is_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_ERROR if any(each.failure for each in comparison.figures) else 0


def _report(console: Console, comparison: Comparison, *, as_json: bool) -> None:
    from distlaunch.local.compare import report
    from distlaunch.local.compare.verdict import judge

    folder, verdict = comparison.folder, judge(comparison.figures, cores=comparison.cores)
    data = report.to_json(comparison, verdict)
    if comparison.is_interrupted:
        console.log("interrupted: the figures are those of the runs before", "warning")
    if as_json:
        console.result(json.dumps(data))
    else:
        chart = report.speed_chart(comparison)
        console.draw(report.table(comparison))
        for part in filter(None, (chart, verdict.text)):
            console.draw("", part)
    try:
        atomic_write(folder / "compare.json", json.dumps(data, indent=1) + "\n")
    except OSError as error:
        what = f"the report cannot be written ({os_reason(error)})"
        raise DistlaunchError(what, where=str(folder)) from None
    log_page(console, report.build_page(comparison, data), folder / "compare.html")
