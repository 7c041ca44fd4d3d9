"""`distlaunch tune`: search for the best options, as a tuning job or on this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli import completion, options
from distlaunch.cli.local import check_here
from distlaunch.cli.page import log_page
from distlaunch.cli.submit import SubmitOptions, check_launch, launch_job, submit_options
from distlaunch.errors import EXIT_ERROR, DistlaunchError, UsageError
from distlaunch.platforms import require_posix

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from distlaunch.checks.report import Report
    from distlaunch.cli.settings import Settings
    from distlaunch.engines.api import JobStatus
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.model import Job, Tuning
    from distlaunch.notify import Ending
    from distlaunch.submit.follow import FollowOptions
    from distlaunch.text import Table
    from distlaunch.tune.search_view import TrialPrice, TuningJobView
    from distlaunch.tune.trial_runs import SearchPlan
    from distlaunch.ui.console import Console

NEWEST = ""  # the value of --attach without a job
# The options that --local and --attach have.
_LOCAL = {"is_local", "trials", "parallel", "workers", "overrides", "name", "is_new"}
_ATTACH = {"attach", "project", "region", "endpoint", "cancel_on_interrupt"}
_ALWAYS = {"as_json", "notify"}


@dataclass(frozen=True, kw_only=True)
class TuneOptions(SubmitOptions):
    """The values of the command's options."""

    is_local: bool
    trials: int | None
    parallel: int | None
    workers: int | None
    attach: str | None


@click.command("tune", cls=options.NamedPassthroughCommand)
@click.option("--local", "is_local", is_flag=True, help="Run the trials on this machine.")
@click.option("--trials", metavar="N", type=click.IntRange(1), help="Number of trials.")
@click.option(
    "--parallel",
    metavar="N",
    type=click.IntRange(1),
    help="Trials at once (default: distlaunch.yaml's, 1 with --local).",
)
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1),
    help="With --local: training tasks of each trial (default: distlaunch.yaml's).",
)
@click.option(
    "--attach",
    metavar="[JOB]",
    is_flag=False,
    flag_value=NEWEST,
    shell_complete=completion.job_names,
    help="Follow a tuning job that was submitted (default: the newest).",
)
@submit_options
@click.option("--new", "is_new", is_flag=True, help="Start over instead of resuming.")
@click.option(
    "--cancel-on-interrupt",
    is_flag=True,
    help="Cancel the job on Ctrl-C (default: it keeps running).",
)
@options.notify
@click.pass_obj
def command(settings: Settings, /, **values: Any) -> int:
    """Search for the best options by the tuning section of distlaunch.yaml.

    Submits a tuning job and shows its trials, the best first, until it ends. With --local, trials
    run on this machine, on Slurm each is a job; the same command again resumes an interrupted
    search.

    \b
      distlaunch tune --local --trials 10
      distlaunch tune --parallel 4 -- --epochs=5
      distlaunch tune --attach
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.notify import Ending, notify_at_end

    tune_options = TuneOptions.of(values)
    if tune_options.workers and not tune_options.is_local:
        raise UsageError("--workers is for --local; add that, or --set cluster.workers.count=N")
    console = settings.console()
    cancels = tune_options.is_local or tune_options.cancel_on_interrupt
    ending = Ending("tune", cancels=cancels)
    target = None if tune_options.dry_run else tune_options.notify
    with notify_at_end(target, ending, console.log):
        ending.code = _tune(console, tune_options, ending)
    return ending.code


def _tune(console: Console, values: TuneOptions, ending: Ending) -> int:
    if values.is_local:
        return _tune_here(console, values, ending)
    if values.attach is not None:
        return _attach(console, values, ending)
    return _submit(console, values, ending)


def _submit(console: Console, values: TuneOptions, ending: Ending) -> int:
    """Submit the tuning job and follow it."""
    from distlaunch.job import vertex
    from distlaunch.redaction import redact_words
    from distlaunch.submit.follow import follow_launch

    launch, notes = options.load_launch(values)
    if launch.job.is_on_slurm:
        return _tune_on_slurm(console, values, launch, notes, ending)
    if not vertex.is_tuned(launch.job):
        raise _nothing_to_tune()
    if launch.job.tuning:
        tuning = _with_counts(launch.job.tuning, values.trials, values.parallel)
        launch = replace(launch, job=replace(launch.job, tuning=tuning))
    elif values.trials or values.parallel:
        raise UsageError("--trials and --parallel: set them in the file of --config")
    submitted = launch_job(console, launch, notes, values)
    if isinstance(submitted, int):
        return submitted
    launched, launcher = submitted.launched, submitted.launcher
    ending.job, ending.job_dir = launched.record.launch_id, launched.record.job_dir or ""
    set_options = [*_set_options(values), "--set=tuning=null"]
    train = redact_words(["distlaunch", "submit", *set_options, "--", *values.program_args])
    how = _follow_options(values, launch.job.scheduling.max_wait)
    with _job_view(console, launched.job, train, _price_of_trial(submitted.report)) as view:
        code = follow_launch(launched, launcher, view, how)
        result = view.summarise_search(as_json=values.as_json)
    _log_page(console, *result)
    return code


def _attach(console: Console, values: TuneOptions, ending: Ending) -> int:
    """Follow a tuning job that exists."""
    from distlaunch.submit.follow import follow_job
    from distlaunch.submit.lookup import JobLocator

    _reject_options(_ATTACH, "{} has no effect on a job that exists; remove it, or --attach")
    if values.program_args:
        raise UsageError("the job that --attach follows has its arguments; remove those after --")
    place = values.endpoint, values.project, values.region, values.engine
    locator = JobLocator(Path.cwd(), *place, console.log)
    located = locator.find(values.attach or None)
    job = located.job
    if job.study is None:
        raise DistlaunchError(
            f"{job.id} is not a tuning job; follow it with 'distlaunch logs --follow'"
        )
    ending.job = job.id
    train = ["distlaunch", "submit", "--set=tuning=null"]
    with _job_view(console, job, train, _price_of_job(job)) as view:
        code = follow_job(located.engine, job, view, _follow_options(values))
        result = view.summarise_search(as_json=values.as_json)
    _log_page(console, *result)
    return code


def _job_view(
    console: Console, job: JobStatus, train: Sequence[str], price: TrialPrice | None
) -> TuningJobView:
    from distlaunch.job.trial import Study
    from distlaunch.tune.search_view import SearchView, TuningJobView

    study = job.study or Study("", "", (), 0)
    return TuningJobView(console, job.id, SearchView(console, study, train, price=price))


def _follow_options(values: TuneOptions, max_wait: float | None = None) -> FollowOptions:
    from distlaunch.submit.follow import FollowOptions

    return FollowOptions(
        selection=None,
        cancel_on_interrupt=values.cancel_on_interrupt,
        max_wait=max_wait,
        reattach="tune --attach",
    )


def _tune_here(console: Console, values: TuneOptions, ending: Ending) -> int:
    """Run the trials on this machine, show them, and return the exit code."""
    require_posix("'distlaunch tune --local'")
    from distlaunch.local import run_plan
    from distlaunch.paths import SEARCHES
    from distlaunch.tune.trial_runs import SearchPlan

    _reject_options(_LOCAL, "{} is for tuning jobs; remove it, or --local")
    words, project = values.program_args, Path.cwd()
    run_plan.check_no_job_dir(words, "trial")
    job = run_plan.load_project_job(project, values.overrides)
    if job is None or job.tuning is None:
        raise _nothing_to_tune()
    tuning = _with_counts(job.tuning, values.trials, values.parallel or 1)
    run_plan.local_cluster(job, values.workers)
    is_trainer = False
    if not run_plan.is_program(words):
        options.reject_launcher_options(words)
        run_plan.require_tensorflow()
        is_trainer = check_here(console, job, words, values.overrides)
    workers = [f"--workers={values.workers}"] if values.workers else []
    local_options = (*_set_options(values), *workers)
    folder = project / SEARCHES / _search_name(values, job)
    plan = SearchPlan(project, folder, job, tuning, local_options, words, is_trainer)
    return _run_trials(console, values, plan, ending)


def _tune_on_slurm(
    console: Console, values: TuneOptions, launch: LaunchRequest, notes: list[str], ending: Ending
) -> int:
    """Run the trials as jobs on Slurm, show them, and return the exit code."""
    from distlaunch.engines.slurm.ownership import make_own_folder
    from distlaunch.local.run_plan import check_no_job_dir
    from distlaunch.tune.trial_runs import SearchPlan

    job, words = launch.job, values.program_args
    check_no_job_dir(words, "trial")
    if values.job_dir:
        raise UsageError("--job-dir: each trial has a job folder of its own; remove it")
    if values.dry_run:
        raise UsageError(
            "--dry-run: trials are submitted one by one; run 'distlaunch submit --dry-run "
            "--set tuning='"
        )
    if job.tuning is None:
        raise _nothing_to_tune()
    report = check_launch(console, launch, notes, values)
    if report is None:
        return EXIT_ERROR
    engine = [f"--engine={values.engine}"] if values.engine else []
    submit_options = (*engine, *_set_options(values), "--set=tuning=null")
    folder = Path(launch.slurm_folder("tune")) / _search_name(values, job)
    make_own_folder(folder.parent)
    tuning = _with_counts(job.tuning, values.trials, values.parallel)
    plan = SearchPlan(launch.folder, folder, job, tuning, submit_options, words, command="submit")
    return _run_trials(console, values, plan, ending)


def _search_name(values: TuneOptions, job: Job) -> str:
    from distlaunch.files import is_file_name

    name = values.name or job.name
    if not is_file_name(name):
        raise UsageError(f"{name!r}: expected the name of a folder for the search, without '/'")
    return name


def _run_trials(console: Console, values: TuneOptions, plan: SearchPlan, ending: Ending) -> int:
    """Run the trials of a search that is planned here, and return the exit code."""
    from distlaunch.files import display_path
    from distlaunch.job.trial import Study
    from distlaunch.redaction import redact_words
    from distlaunch.tune.search import check_search
    from distlaunch.tune.search_view import SearchView, exit_code_of
    from distlaunch.tune.trial_runs import TrialRuns, move_aside

    check_search(plan.tuning)
    old = move_aside(plan.base, plan.folder) if values.is_new else None
    if old:
        console.log(f"the earlier search is in {display_path(old)}")
    ending.job, ending.job_dir = plan.folder.name, str(plan.folder)
    search = TrialRuns(plan)
    train = redact_words(["distlaunch", plan.command, *plan.options, "--", *plan.words])
    report = SearchView(console, Study.of_tuning(plan.tuning), train)
    console.log(f"trials in {display_path(plan.folder)}")
    signal = search.run(report.update, console.hurry)
    state = "STOPPED" if signal else "FAILED" if exit_code_of(search.trials) else "SUCCEEDED"
    job, as_json = plan.folder.name, values.as_json
    result = report.summarise(search.trials, as_json=as_json, job=job, state=state)
    _log_page(console, *result, plan.folder)
    if signal:
        same = "the same command without --new" if values.is_new else "the same command again"
        console.log(f"interrupted: {same} resumes the search", "warning")
    return signal or exit_code_of(search.trials)


def _log_page(
    console: Console, result: dict[str, Any], table: Table, folder: Path | None = None
) -> None:
    """Write the page of a search into its folder; that of a job is beside its record, if any."""
    from distlaunch.paths import JOBS
    from distlaunch.tune.search_page import FILE_NAME, build

    name = Path(f"{result['job']}.html").name  # the job may come from a server
    of_job = (JOBS if JOBS.is_dir() else Path()).absolute() / name
    path = folder / FILE_NAME if folder else of_job
    if result["trials"]:
        log_page(console, build(result, table, path), path)


def _with_counts(tuning: Tuning, trials: int | None, parallel: int | None) -> Tuning:
    """Return a search with other numbers of trials, where they are given."""
    trials = trials or tuning.trials
    at_once = parallel or min(tuning.parallel_trials, trials)
    return replace(tuning, trials=trials, parallel_trials=at_once)


def _nothing_to_tune() -> DistlaunchError:
    return DistlaunchError(
        "distlaunch.yaml: no tuning section; add one, such as tuning: {metric: val_accuracy, goal: "
        "maximize, trials: 10, parameters: {learning-rate: {type: double, min: 0.001, max: 0.1}}}"
    )


def _set_options(values: TuneOptions) -> list[str]:
    """Return the ``--set`` options of the command line, without those of the search."""
    overrides = (text for text in values.overrides if not text.startswith("tuning"))
    return [f"--set={text}" for text in overrides]


def _reject_options(allowed: Collection[str], error: str) -> None:
    """Raise UsageError for an option of the command line that is not one of the allowed."""
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        is_typed = source is click.core.ParameterSource.COMMANDLINE
        if is_typed and parameter.name not in {*allowed, *_ALWAYS}:
            raise UsageError(error.format(parameter.opts[0]))


def _price_of_trial(report: Report) -> TrialPrice | None:
    """Return the price of an hour of one trial, None if it is unknown."""
    from distlaunch.tune.search_view import TrialPrice

    cost = report.cost
    if cost is None or not cost.an_hour:
        return None
    return TrialPrice(cost.an_hour / cost.trials_at_once, cost.currency, cost.is_estimate)


def _price_of_job(job: JobStatus) -> TrialPrice | None:
    """Return the price of an hour of one trial of a job, None if it is unknown."""
    from decimal import Decimal

    from distlaunch.price import cost_so_far
    from distlaunch.tune.search_view import TrialPrice

    cost = cost_so_far(job, Path.cwd())
    if cost is None:
        return None
    return TrialPrice(Decimal(str(cost["an_hour"])), cost["currency"], cost["is_estimate"])
