"""`distlaunch emulator`: answer in Vertex AI's place, on this machine."""

from __future__ import annotations

import select
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

if TYPE_CHECKING:
    from distlaunch.cli import Settings
    from distlaunch.emulator.emulator import Emulator, RunWith

PORT = 8085

_FAULTS = """\
--faults is a list, as 503:0.3,lost@create,slow-states:2. Each part is NAME[:SHARE][@CALL[#N]].

\b
  404 429 500 502 503 504  refuse calls with this status
  reset     close the connection before a call has had an effect
  lost      close it after that, without an answer
  hang      never answer
  expired   401: the access token has expired
  denied    403: a permission is missing
  disabled  403: the API is not enabled
  quota     429: the job exceeds its quota

CALL is create, get, list, cancel, delete, logs or storage, or one of those by which a check asks
about the project: services, quotas, billing, prices, permissions, accounts, repository; without one
it is any. SHARE is how many of them it strikes, from 0 to 1. Without one it strikes the first, or
with #N the Nth, #N-M several, #* all; denied, disabled and quota strike all.

\b
What a project lacks; all is well with it otherwise.
  without:WHAT         project, billing, bucket, repository, account, agent,
                       an API (aiplatform.googleapis.com) or a permission
                       (storage.objects.create)
  bucket-in:PLACE      the buckets are there, as EU, NAM4 or europe-west1
  repository-format:F  the repositories hold something else, as PYTHON
  limit:METRIC=N       a quota of training, as limit:nvidia_t4_gpus=2

\b
  slow-states:SECONDS   jobs stay so long QUEUED, and PENDING (5)
  expire-jobs           jobs end EXPIRED in the queue
  seed:N                what is left to chance is drawn with this (0)
"""


@click.command(
    "emulator", short_help="Answer in Vertex AI's place, on this machine.", epilog=_FAULTS
)
@click.option(
    "--port",
    metavar="P",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="Where to listen on 127.0.0.1; 0 for any port that is free.",
)
@click.option(
    "--run-with",
    type=click.Choice(["docker", "process"]),
    default="docker",
    show_default=True,
    help="Run the jobs as containers of their image, or as processes here.",
)
@click.option(
    "--project-dir",
    metavar="D",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Where processes run (this folder, if not said).",
)
@click.option(
    "--storage",
    metavar="D",
    type=click.Path(path_type=Path),
    help="The folder of the buckets (one that is removed at the end, if not said).",
)
@click.option(
    "--region",
    metavar="R",
    default="us-central1",
    show_default=True,
    help="Where the buckets are said to be.",
)
@click.option("--faults", metavar="SPEC", default="", help="What is to go wrong; see below.")
@click.pass_obj
def command(
    settings: Settings,
    /,
    *,
    port: int,
    run_with: str,
    project_dir: Path,
    storage: Path | None,
    region: str,
    faults: str,
) -> int:
    """Answer in the place of Vertex AI's job service, Cloud Logging and Cloud Storage.

    What 'distlaunch check' asks about the project is answered too, with prices that are made up.
    The first line on stdout is the address. Commands go there with --endpoint or
    DISTLAUNCH_ENDPOINT; jobs are checked as Vertex AI checks them, and run for real. The emulator
    and its jobs end with Ctrl-C, and it forgets them; only this machine reaches it.

    \b
      distlaunch emulator --run-with process &
      export DISTLAUNCH_ENDPOINT=http://127.0.0.1:8085
      distlaunch submit
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.cli import show
    from distlaunch.emulator.emulator import Emulator
    from distlaunch.emulator.faults import Faults
    from distlaunch.local.stop_signals import StopSignals

    console = settings.console()
    lock = threading.Lock()

    def log(line: str) -> None:
        with lock:
            console.say(line, "debug")

    emulator = Emulator(
        port=port,
        run_with=cast("RunWith", run_with),
        project_dir=project_dir,
        storage=storage,
        region=region,
        faults=Faults.parse(faults),
        log=log,
    )
    with StopSignals() as signals, emulator:
        show(emulator.url)
        with lock:
            for line in _usage(emulator, run_with, is_kept=storage is not None):
                console.say(line)
        select.select([signals], [], [])
        with lock:
            console.say("ending, and the jobs with it")
    return 0


def _usage(emulator: Emulator, run_with: str, *, is_kept: bool) -> tuple[str, ...]:
    kind = "containers" if run_with == "docker" else "processes"
    kept = "" if is_kept else ", which is removed at the end (--storage D keeps it)"
    return (
        f"Vertex AI's job service is at {emulator.url}; it runs jobs as {kind}",
        f"buckets are folders in {emulator.storage}{kept}",
        f"to use it: export DISTLAUNCH_ENDPOINT={emulator.url}",
        "Ctrl-C ends it and its jobs, which it does not keep",
    )
