"""`distlaunch forecast`: hours and money of clusters, from what earlier runs measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch.cli import completion, options, page, runs
from distlaunch.cli.settings import draw, show
from distlaunch.errors import DistlaunchError, UsageError

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings
    from distlaunch.submit.lookup import JobLocator

_MACHINE = re.compile(r"([a-z0-9-]+)(?::([A-Z0-9_]+)(?::([1-9][0-9]?))?)?")


def _counts(_: click.Context, __: click.Parameter, text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() and 0 < int(word) <= 1000 for word in words):
        raise click.BadParameter(f"{text!r}: expected numbers from 1 to 1000, such as 1,2,4,8")
    return sorted(set(map(int, words)))


@click.command("forecast")
@options.with_locator
@click.argument("names", metavar="[RUN|JOB]...", nargs=-1, shell_complete=completion.runs_and_jobs)
@click.option(
    "--machine",
    "machines",
    metavar="TYPE[:ACCELERATOR[:COUNT]]",
    multiple=True,
    help="Machine of each task, several times for several (default: the job file's chief); "
    "'local' for all tasks on this machine.",
)
@click.option(
    "--workers",
    metavar="N,...",
    default="1,2,4,8",
    show_default=True,
    callback=_counts,
    help="Numbers of tasks, including the chief.",
)
@click.option(
    "--batch-size", metavar="B", type=click.IntRange(1), help="Rows of a task (default: the run's)."
)
@click.option(
    "--epochs",
    metavar="E",
    type=click.IntRange(1),
    help="Passes over the data (default: the run's).",
)
@click.option(
    "--examples-per-second",
    "speed",
    metavar="V",
    type=click.FloatRange(0, min_open=True),
    help="Speed of one task on --machine where you know it, e.g. from a notebook on such a GPU.",
)
@page.as_html
@page.output("forecast.html")
@options.as_json
def command(
    settings: Settings,
    locator: JobLocator,
    *,
    names: tuple[str, ...],
    machines: tuple[str, ...],
    workers: list[int],
    batch_size: int | None,
    epochs: int | None,
    speed: float | None,
    as_html: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Predict hours and money of clusters from the steps of earlier runs.

    RUN is a local run's id or folder, JOB as for 'distlaunch status' (default: the newest). The
    first one is of the model in question; more of them make the forecast better: another number of
    workers, another batch size.
    """
    from distlaunch.engines.vertex.client import is_loopback
    from distlaunch.price.forecast import Clusters, to_json, to_text
    from distlaunch.runs.measured import measured_run

    page.check_output(output, as_html=as_html)
    console = settings.console()
    clusters = Clusters(Path.cwd(), locator.region)
    targets = [clusters.target(*_parse(text)) for text in machines] or [clusters.default()]
    if speed and len(targets) > 1:
        raise UsageError("--examples-per-second is the speed of one machine: give one --machine")
    measured = {}
    for name in names or (None,):
        view, engine = runs.find(locator, name)
        if engine and is_loopback(engine.endpoint):
            console.log(
                f"{view.id}: it ran at the emulator, so its times are those of this machine",
                "warning",
            )
        measured[view.id] = measured_run(view)
    shapes, refusals = clusters.forecast_all(
        [*measured.values()], targets, workers, batch=batch_size, epochs=epochs, speed=speed
    )
    if not shapes:
        raise DistlaunchError("; ".join(refusals))
    for refusal in refusals:
        console.log(refusal, "warning")
    if as_json:
        show(json.dumps(to_json(shapes, refusals)))
    else:
        draw(*to_text(shapes))
    if as_html:
        from distlaunch.price.forecast_page import build

        address = page.write_page(build(shapes, refusals), output or Path("forecast.html"))
        console.log(f"page: {address}")


def _parse(text: str) -> tuple[str, str | None, int]:
    match = _MACHINE.fullmatch(text)
    if match is None:
        raise UsageError(f"--machine {text}: expected TYPE[:ACCELERATOR[:COUNT]] or local")
    name, accelerator, count = match.groups()
    return name, accelerator, int(count or 1) if accelerator else 0
