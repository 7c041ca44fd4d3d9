"""`distlaunch render`: write Dockerfile, .dockerignore and config.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch.cli import options, show

if TYPE_CHECKING:
    from distlaunch.cli import Settings
    from distlaunch.render.templates import Format


@click.command("render", short_help="Write Dockerfile, .dockerignore and config.yaml.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["vertex", "ai-platform"]),
    default="vertex",
    show_default=True,
    help="What config.yaml is written for: Vertex AI, or AI Platform (masterType …).",
)
@click.option(
    "--output",
    metavar="DIR",
    default=".",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to write to (the folder you are in, unless said otherwise).",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="AI Platform's or Vertex AI's file, in place of the cluster section.",
)
@click.option(
    "--replace-retired",
    is_flag=True,
    help="Replace retired accelerators of --config FILE by the first of their replacements.",
)
@options.assignments
@click.pass_obj
def command(
    settings: Settings,
    *,
    kind: Format,
    output: Path,
    config: Path | None,
    replace_retired: bool,
    assignments: tuple[str, ...],
) -> None:
    """Write the files that an image and a job of distlaunch.yaml are made by.

    They are what 'distlaunch submit' works with, to read or to use by hand: the commands for that
    are shown. No file is overwritten but one that render wrote and nobody has changed.

    \b
      distlaunch render
      distlaunch render --format ai-platform --output legacy
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.checks.required_fields import placeholders
    from distlaunch.job.load import load_job
    from distlaunch.render.files import render

    folder = Path.cwd()
    loaded = load_job(folder, config=config, overrides=assignments, replace_retired=replace_retired)
    rendered = render(loaded.job, folder, output, kind)
    rendered.write(output)
    console = settings.console()
    left = (problem.line for problem in placeholders(loaded.job))
    for note in (*loaded.notes, *rendered.notes, *left):
        console.log(note, "warning")
    if not settings.quiet:
        for name in rendered.files:
            show(f"wrote {output / name}")
        show("next:")
        for line in rendered.commands:
            show(f"  {line}")
