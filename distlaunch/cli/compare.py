"""`distlaunch local --compare`: the same work on several clusters of this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.cli import options
from distlaunch.errors import EXIT_ERROR, EXIT_INTERRUPTED, UsageError
from distlaunch.paths import COMPARISONS

if TYPE_CHECKING:
    from types import SimpleNamespace

    from distlaunch.local.compare.rounds import Comparison
    from distlaunch.ui.console import Console

DEFAULT_ROUNDS = 2
_CHART_WIDTH = 40  # characters of the longest bar
# Options of `local` that have no meaning for several runs, and their names.
_OTHERS = {
    "workers": "--workers",
    "job_dir": "--job-dir",
    "restarts": "--restarts",
    "kill": "--kill",
    "freeze": "--freeze",
    "audit": "--audit",
    "docker": "--docker",
    "notify": "--notify",
}


def compare(console: Console, values: SimpleNamespace, *, env: dict[str, str]) -> int:
    """Run the comparison, print and write its report, and return the exit code."""
    from distlaunch.local.compare.rounds import Rounds
    from distlaunch.local.compare.variants import plan_variants
    from distlaunch.local.run_folder import create_numbered
    from distlaunch.local.run_plan import load_project_job
    from distlaunch.local.run_spec import is_program

    given = [name for key, name in _OTHERS.items() if getattr(values, key)]
    given += ["--resume"] if values.resume is not None else []
    if given:
        option = "--compare" if values.compare else "--batch-sizes"
        raise UsageError(f"{given[0]} cannot be combined with {option}")
    words, project = values.program_args, Path.cwd()
    if not is_program(words):
        options.reject_launcher_options(words)
    job = load_project_job(project, values.overrides)
    if job and not is_program(words):
        options.check_here(console, replace(job, tuning=None), words, values.overrides)
    variants = plan_variants(job, words, values.compare, values.batch_sizes)
    folder = create_numbered(project, COMPARISONS)
    rounds = Rounds(project, job, variants, folder=folder, console=console, env=env)
    console.log(f"{rounds.describe()} · {folder}")
    batches = {each.global_batch for each in variants} - {None}
    if len(batches) == 1:
        console.log(f"global batch {batches.pop()} in all variants")
    comparison = rounds.run(values.rounds or DEFAULT_ROUNDS)
    _report(console, comparison, as_json=values.as_json)
    if comparison.is_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_ERROR if comparison.has_failed else 0


def _report(console: Console, comparison: Comparison, *, as_json: bool) -> None:
    from distlaunch.local.compare import page
    from distlaunch.local.compare.verdict import judge
    from distlaunch.text import table

    verdict = judge(comparison.figures, cores=comparison.cores)
    for note in page.write_files(comparison, verdict):
        console.log(note)
    if comparison.is_interrupted:
        console.log("interrupted: the figures are those of the runs before", "warning")
    if as_json:
        console.result(json.dumps(page.to_json(comparison, verdict)))
    else:
        chart = page.speed_chart(comparison, _CHART_WIDTH)
        parts = [table(page.rows(comparison)), chart, verdict.text]
        console.result("\n\n".join(filter(None, parts)))
        console.log(f"charts: {comparison.folder / 'compare.html'}")
