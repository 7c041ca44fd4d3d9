"""`distlaunch emulator`: a local Vertex AI job service."""

from __future__ import annotations

import select
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distlaunch.platforms import require_posix

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings
    from distlaunch.emulator.emulator import RunWith

PORT = 8085


@click.command("emulator")
@click.option(
    "--port",
    metavar="P",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="The port on 127.0.0.1; 0 for any free one.",
)
@click.option(
    "--run-with",
    type=click.Choice(["docker", "process"]),
    default="docker",
    show_default=True,
    help="Run jobs as containers of their image, or as processes on this machine.",
)
@click.option(
    "--project-dir",
    metavar="D",
    type=click.Path(path_type=Path),
    default=Path(),
    help="The folder in which processes run (default: this folder).",
)
@click.option(
    "--storage",
    metavar="D",
    type=click.Path(path_type=Path),
    help="The folder of the buckets (default: a temporary one).",
)
@click.option(
    "--region",
    metavar="R",
    default="us-central1",
    show_default=True,
    help="The location of the buckets.",
)
@click.option(
    "--faults",
    metavar="LIST",
    default="",
    help="Faults, separated by commas: slow-states[:SECONDS] keeps jobs QUEUED, and then PENDING, "
    "for so long (5); stockout[:REGION|MACHINE] ends them FAILED for want of machines, all without "
    "a place; no-start[:REGION|MACHINE] keeps them PENDING.",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Serve every user of this machine, at a URL without a token.",
)
@click.pass_obj
def command(
    settings: Settings, /, *, run_with: RunWith, storage: Path | None, **values: Any
) -> int:
    """Run a local Vertex AI job service, with Cloud Logging and Cloud Storage.

    The first line on stdout is its URL; pass it to other commands with --endpoint or
    DISTLAUNCH_ENDPOINT. Jobs really run, as you, and buckets are folders. Ctrl-C ends the emulator
    and its jobs. It can be reached from this machine only, and only with the token in its URL.

    \b
      distlaunch emulator --run-with process > url &
      export DISTLAUNCH_ENDPOINT=$(cat url)
      distlaunch submit
    """  # noqa: D301 - click wants the character that this is an escape for
    if run_with == "process":
        require_posix("'distlaunch emulator --run-with process'")
    from distlaunch.cli.settings import show
    from distlaunch.emulator.emulator import Emulator
    from distlaunch.stop_signals import StopSignals

    console = settings.console()
    lock = threading.Lock()

    def log_request(line: str) -> None:
        with lock:
            console.log(line, "debug")

    emulator = Emulator(run_with=run_with, storage=storage, log=log_request, **values)
    with StopSignals(console.hurry) as signals, emulator:
        show(emulator.url)
        with lock:
            kind = "containers" if run_with == "docker" else "processes"
            kept = "" if storage else ", removed at the end (--storage D keeps it)"
            console.log(f"Vertex AI's job service is at {emulator.url} and runs jobs as {kind}")
            if run_with == "process":
                console.log(f"jobs run the project in {emulator.project_dir.resolve()}, no other")
            console.log(f"buckets are folders in {emulator.storage}{kept}")
            console.log(f"to use it: export DISTLAUNCH_ENDPOINT={emulator.url}")
            console.log("press Ctrl-C to end it and its jobs")
        select.select([signals], [], [])
        with lock:
            console.log("shutting down; cancelling running jobs")
    return 0
