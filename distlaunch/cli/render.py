"""`distlaunch render`: write Dockerfile, .dockerignore and config.yaml, or a batch script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distlaunch.cli import options
from distlaunch.cli.settings import show

if TYPE_CHECKING:
    from distlaunch.cli.settings import Settings
    from distlaunch.render import Format


@click.command("render")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["vertex", "ai-platform", "slurm", "jobset"]),
    help="Vertex AI's config.yaml, AI Platform's (masterType …), a batch script of Slurm, or a "
    "JobSet of Kubernetes (default: that of the engine).",
)
@click.option(
    "--output",
    metavar="DIR",
    default=".",
    type=click.Path(path_type=Path, file_okay=False),
    help="Output directory (default: the current one).",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="config.yaml of AI Platform or Vertex AI, in place of the cluster section.",
)
@options.replace_retired
@options.overrides
@click.pass_obj
def command(
    settings: Settings,
    kind: Format | None,
    output: Path,
    config: Path | None,
    *,
    replace_retired: bool,
    overrides: tuple[str, ...],
) -> None:
    """Write Dockerfile, .dockerignore and config.yaml of the job of distlaunch.yaml.

    These are the files that 'distlaunch submit' uses, for reading or for building and submitting
    without it; the commands are printed. Only unchanged files of an earlier render are overwritten.

    \b
      distlaunch render
      distlaunch render --format ai-platform --output legacy
      distlaunch render --format jobset
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.checks.required_fields import placeholders
    from distlaunch.job.load import load_job
    from distlaunch.render import render

    folder = Path.cwd()
    loaded = load_job(
        folder,
        config=config,
        engine="vertex" if kind in ("vertex", "ai-platform") else None,
        overrides=overrides,
        replace_retired=replace_retired,
    )
    kind = kind or ("slurm" if loaded.job.is_on_slurm else "vertex")
    rendered = render(loaded.job, folder, output, kind)
    rendered.write(output)
    console = settings.console()
    left = (problem.line for problem in placeholders(loaded.job)) if kind != "slurm" else ()
    for note in (*loaded.notes, *rendered.notes, *left):
        console.log(note, "warning")
    if not settings.quiet:
        for name in rendered.files:
            show(f"wrote {output / name}")
        if rendered.wheel:
            show(f"wrote {rendered.wheel[0].relative_to(folder)}")
        show("next:")
        for line in rendered.commands:
            show(f"  {line}")
