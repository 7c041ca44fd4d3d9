"""`distlaunch tune`: search for the best options, as a tuning job or on this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from distlaunch.cli import completion, options
from distlaunch.cli.submit import launch_job, submit_options
from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.exit_codes import EXIT_INTERRUPTED, EXIT_JOB_FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.checks.report import Report
    from distlaunch.cli.settings import Settings
    from distlaunch.engines.vertex.follow import JobFollower
    from distlaunch.engines.vertex.jobs import Jobs
    from distlaunch.job.model import Tuning
    from distlaunch.notify import Ending
    from distlaunch.submit.lookup import LocatedJob
    from distlaunch.tune.search_view import TrialPrice
    from distlaunch.tune.trial import Trial
    from distlaunch.ui.console import Console
    from distlaunch.ui.progress_view import ProgressView

NEWEST = ""  # the value of --attach without a job
_CLOUD_ONLY = (  # options that --local does not have
    *("project", "region", "endpoint", "job_dir", "config", "replace_retired", "image"),
    *(
        "attach",
        "catalogue",
        "prices",
        "dry_run",
        "verbose",
        "no_check",
        "cancel_on_interrupt",
    ),
)


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
    run on this machine; the same command again resumes an interrupted search.

    \b
      distlaunch tune --local --trials 10
      distlaunch tune --parallel 4 -- --epochs=5
      distlaunch tune --attach
    """  # noqa: D301 - click wants the character that this is an escape for
    from distlaunch.notify import Ending, notify_at_end

    tune_options = SimpleNamespace(**values)
    if tune_options.workers and not tune_options.is_local:
        raise UsageError("--workers is for --local; add that, or --set cluster.workers.count=N")
    console = settings.console()
    cancels = tune_options.is_local or tune_options.cancel_on_interrupt
    ending = Ending("tune", cancels=cancels)
    target = None if tune_options.dry_run else tune_options.notify
    with notify_at_end(target, ending, console.log):
        ending.code = _tune(console, tune_options, ending)
    return ending.code


def _tune(console: Console, values: SimpleNamespace, ending: Ending) -> int:
    if values.is_local:
        return _tune_here(console, values, ending)
    if values.attach is not None:
        return _attach(console, values, ending)
    return _submit(console, values, ending)


def _submit(console: Console, values: SimpleNamespace, ending: Ending) -> int:
    """Submit the tuning job and follow it."""
    from distlaunch.cli.follow import show_submitted
    from distlaunch.job import vertex
    from distlaunch.redaction import redact_words
    from distlaunch.submit.launcher import job_goes_on

    launch, notes = options.load_launch(values)
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
    record = submitted.launched.record
    ending.job, ending.job_dir = record.launch_id, record.job_dir or ""
    show_submitted(console, submitted.launched)
    set_options = [*_set_options(values), "--set=tuning=null"]
    train = redact_words(["distlaunch", "submit", *set_options, "--", *values.program_args])
    with job_goes_on(record):
        code = _follow(
            console,
            submitted.launcher.jobs,
            submitted.launched.job,
            train,
            values,
            price=_price_of_trial(submitted.report),
        )
    submitted.launcher.close(record)
    return code


def _attach(console: Console, values: SimpleNamespace, ending: Ending) -> int:
    """Follow a tuning job that exists."""
    from distlaunch.engines.vertex.jobs import job_id
    from distlaunch.submit.lookup import JobLocator

    locator = JobLocator(Path.cwd(), values.endpoint, values.project, values.region, console.log)
    located = locator.find(values.attach or None)
    if "studySpec" not in located.job:
        raise DistlaunchError(
            f"{job_id(located.job)} is not a tuning job; follow it with 'distlaunch logs --follow'"
        )
    ending.job = job_id(located.job)
    train = ["distlaunch", "submit", "--set=tuning=null"]
    price = _price_of_job(located)
    return _follow(console, located.jobs, located.job, train, values, price=price)


def _follow(
    console: Console,
    jobs: Jobs,
    job: Mapping[str, Any],
    train: Sequence[str],
    values: SimpleNamespace,
    *,
    price: TrialPrice | None = None,
) -> int:
    """Show the trials of a job until it has ended, and return the exit code."""
    import time

    from distlaunch import timestamps
    from distlaunch.engines.vertex.client import is_loopback
    from distlaunch.engines.vertex.follow import EMULATOR, GOOGLE, JobFollower
    from distlaunch.engines.vertex.jobs import JobState, has_ended, job_id, state
    from distlaunch.tune.search_view import SearchView
    from distlaunch.tune.trial import Study, read_cloud_trials
    from distlaunch.ui.progress_view import ProgressView

    study = Study.of_job(job)
    report = SearchView(console, study, train, price=price)

    def trials() -> list[Trial]:
        return read_cloud_trials(follower.job, study.metric, timestamps.format(time.time()))

    def wait(seconds: float) -> None:
        report.update(trials())
        view.wait(seconds)

    with ProgressView(console, ["chief"]) as view:
        follower = JobFollower(
            jobs,
            job,
            has_logs=False,
            intervals=EMULATOR if is_loopback(jobs.session.endpoint) else GOOGLE,
            sleep=wait,
        )
        is_interrupted = False
        try:
            view.stream(follower)
        except KeyboardInterrupt:
            is_interrupted = not has_ended(follower.job)
            if is_interrupted:
                _leave(
                    console, jobs, job_id(job), follower, view, cancel=values.cancel_on_interrupt
                )
        report.update(trials())
        final = state(follower.job)
        report.summarise(trials(), as_json=values.as_json, job=job_id(job), state=str(final))
    if is_interrupted:
        return EXIT_INTERRUPTED
    return 0 if final is JobState.SUCCEEDED else EXIT_JOB_FAILED


def _leave(
    console: Console,
    jobs: Jobs,
    name: str,
    follower: JobFollower,
    view: ProgressView,
    *,
    cancel: bool,
) -> None:
    """Leave a job running after Ctrl-C, or cancel it."""
    if not cancel:
        console.log(
            f"interrupted: the job is still running; reattach with 'distlaunch tune --attach "
            f"{name}', cancel it with 'distlaunch cancel {name}'",
            "warning",
        )
        return
    console.log("interrupted: cancelling the job (Ctrl-C again exits)")
    with suppress(KeyboardInterrupt):
        jobs.cancel(follower.job["name"])
        view.stream(follower)


def _tune_here(console: Console, values: SimpleNamespace, ending: Ending) -> int:
    """Run the trials on this machine, show them, and return the exit code."""
    from distlaunch.files import is_file_name
    from distlaunch.local.run_plan import (
        check_no_job_dir,
        load_project_job,
        local_cluster,
        require_tensorflow,
    )
    from distlaunch.local.run_spec import is_program
    from distlaunch.paths import SEARCHES
    from distlaunch.redaction import redact_words
    from distlaunch.tune.local_search import LocalSearch, SearchPlan, move_aside
    from distlaunch.tune.search import check_search
    from distlaunch.tune.search_view import SearchView, exit_code_of
    from distlaunch.tune.trial import Study

    _reject_cloud_options()
    words, project = values.program_args, Path.cwd()
    check_no_job_dir(words, "trial")
    job = load_project_job(project, values.overrides)
    if job is None or job.tuning is None:
        raise _nothing_to_tune()
    tuning = _with_counts(job.tuning, values.trials, values.parallel or 1)
    check_search(tuning)
    local_cluster(job, values.workers)
    is_trainer = False
    if not is_program(words):
        options.reject_launcher_options(words)
        require_tensorflow()
        is_trainer = options.check_here(console, job, words, values.overrides)
    set_options = _set_options(values)
    local_options = (*set_options, *([f"--workers={values.workers}"] if values.workers else []))
    name = values.name or job.name
    if not is_file_name(name):
        raise UsageError(f"{name!r}: expected the name of a folder for the search, without '/'")
    folder = project / SEARCHES / name
    old = move_aside(project, folder) if values.is_new else None
    if old:
        console.log(f"the earlier search is in {old.relative_to(project)}")
    ending.job, ending.job_dir = folder.name, str(folder)
    plan = SearchPlan(project, folder, job, tuning, local_options, words, is_trainer)
    search = LocalSearch(plan)
    train = redact_words(["distlaunch", "local", *local_options, "--", *words])
    report = SearchView(console, Study.of_tuning(tuning), train)
    console.log(f"trials in {folder.relative_to(project)}")
    signal = search.run(report.update)
    state = "STOPPED" if signal else "FAILED" if exit_code_of(search.trials) else "SUCCEEDED"
    report.summarise(search.trials, as_json=values.as_json, job=folder.name, state=state)
    if signal:
        same = "the same command without --new" if values.is_new else "the same command again"
        console.log(f"interrupted: {same} resumes the search", "warning")
    return signal or exit_code_of(search.trials)


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


def _set_options(values: SimpleNamespace) -> list[str]:
    """Return the ``--set`` options of the command line, without those of the search."""
    overrides = (text for text in values.overrides if not text.startswith("tuning"))
    return [f"--set={text}" for text in overrides]


def _reject_cloud_options() -> None:
    """Raise UsageError for an option that has no meaning with --local."""
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if parameter.name in _CLOUD_ONLY and source is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"{parameter.opts[0]} is for tuning jobs; remove it, or --local")


def _price_of_trial(report: Report) -> TrialPrice | None:
    """Return the price of an hour of one trial, None if it is unknown."""
    from distlaunch.tune.search_view import TrialPrice

    cost = report.cost
    if cost is None or cost.an_hour is None:
        return None
    return TrialPrice(cost.an_hour / cost.trials_at_once, cost.currency, cost.is_estimate)


def _price_of_job(located: LocatedJob) -> TrialPrice | None:
    """Return the price of an hour of one trial of a job, None if it is unknown."""
    from decimal import Decimal

    from distlaunch.price import cost_so_far
    from distlaunch.tune.search_view import TrialPrice

    cost = cost_so_far(located.job, located.jobs.project, Path.cwd())
    if cost is None:
        return None
    return TrialPrice(Decimal(str(cost["an_hour"])), cost["currency"], cost["is_estimate"])
