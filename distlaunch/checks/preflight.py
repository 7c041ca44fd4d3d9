"""Runs all checks of a job before a submit and returns one report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from http import HTTPStatus
from typing import TYPE_CHECKING

from distlaunch import price
from distlaunch.background import BackgroundTask
from distlaunch.checks import (
    choices,
    cost_limit,
    data,
    limits,
    required_fields,
    source_location,
    trainer,
)

# With `distlaunch.image`, before any thread starts: two that import one package can deadlock.
from distlaunch.checks.image_check import check_image
from distlaunch.checks.problem import error
from distlaunch.checks.project import fit_calls, gpus, image_runtime, imports, requirements
from distlaunch.checks.project.image_runtime import ImageRuntime, OwnDockerfile
from distlaunch.checks.report import Report
from distlaunch.errors import GoogleError, JobFileError
from distlaunch.image.cloud_build import API
from distlaunch.image.plan import BuildStrategy
from distlaunch.job import machine_catalogue, vertex
from distlaunch.job.vertex.view import job_request

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.data import DataPlan
    from distlaunch.checks.image_check import ImageCheck
    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.requirements import ImageRequirements
    from distlaunch.checks.trainer import Trainer
    from distlaunch.engines.vertex.client import Session
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.vertex.view import JobRequest

_REGISTRY_TIMEOUT = 8.0  # seconds for all look-ups of the bases, and for those of the image
_ARGS_OF_IMAGE = ("args", "not checked: the program is in the image")
_FIRST_LINE = "training begins with the line 'chief | strategy: …', after the image is pulled"


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What to check."""

    offline: bool = False  # contacts neither Google nor a registry
    run: bool = False  # trains one step on this machine
    compare: bool = False  # lists other machines
    prices: Path | None = None  # the user's; None for those in the project's folder, if any


def run_checks(
    launch: LaunchRequest, options: CheckOptions, *, session: Session | None = None
) -> Report:
    """Check a job; nothing is built, pushed or created.

    Google's APIs are called with `session`, by default one with the credentials of this machine.
    DistlaunchError is raised if the user's catalogue or price file cannot be read.
    """
    if launch.job.is_on_slurm:
        from distlaunch.checks import slurm

        return slurm.run_checks(launch, offline=options.offline, run=options.run)
    problems = list(required_fields.problems(launch))
    if session is None and not options.offline and not launch.is_for_emulator:
        session = _connect(launch, problems)
    if session:
        launch = _with_reservation(launch, session, problems)
    request, today = job_request(launch), date.today()  # noqa: DTZ011 - the user's date
    catalogue = machine_catalogue.of_project(launch.folder, launch.catalogue)
    prices = price.price_choices(launch, options.prices)
    cloud = BackgroundTask(lambda: _cloud_problems(launch, request, session, catalogue))
    message = BackgroundTask(lambda: list(_message_problems(launch, request)))
    image = check_image(launch, offline=options.offline)
    bundled = trainer.find_trainer(launch)
    is_bundled = bundled is not None
    if options.run:  # records the data, too
        problems += trainer.run_one_step(launch, bundled)
    runtime = image_runtime.describe_image(launch) if vertex.needs_image(launch.job) else None
    listed = requirements.load_requirements(launch.job, launch.folder, runtime) if runtime else None
    packages = BackgroundTask(lambda: _check_packages(listed, image, offline=options.offline))
    problems += message.result()
    problems += choices.problems(launch, catalogue, runtime, today, is_bundled=is_bundled)
    if launch.is_for_emulator:
        remedy = "'distlaunch shell' prints how to look into its tasks"
        problems += limits.ignored_web_access(request, "in the emulator", remedy)
    problems += gpus.idle_stop(launch.job, is_bundled=is_bundled)
    problems += cost_limit.problems(launch, prices)
    problems += image.problems
    plan = None
    if listed:
        problems += project_problems(launch, request, listed, image.files, bundled)
        if image.files is not None:
            plan, data_problems = data.check_data(
                launch, request, bundled, image.files, listed.runtime
            )
            problems += data_problems
    elif launch.job.image.uri and bundled:
        plan, code_problems = _check_code_of_named_image(launch, bundled)
        problems += code_problems
    package_problems, notes = packages.result()
    problems += package_problems
    full_build = image.plan is None or image.plan.strategy == BuildStrategy.CLOUD_BUILD
    problems += [each for each in cloud.result() if full_build or each.where != API]
    return Report(
        request=request,
        cluster=launch.job.cluster.describe(),
        problems=_sorted(problems, launch),
        image=image.plan,
        registry_contacted=image.registry_contacted,
        data=plan,
        choices=prices,
        offers=_offers(launch, options, catalogue, today),
        first_line=_FIRST_LINE if bundled else "",
        is_emulated=launch.is_for_emulator,
        changed_task=bundled.changed_task if bundled else "",
        notes=notes if bundled or not launch.job.image.uri else (_ARGS_OF_IMAGE,),
    )


def _check_packages(
    listed: ImageRequirements | None, image: ImageCheck, *, offline: bool
) -> tuple[list[Problem], tuple[tuple[str, str], ...]]:
    """Resolve the requirements of an environment that is to be built; return problems and notes."""
    known = image.plan.strategy if image.plan and image.registry_contacted else None
    is_built = known in (None, BuildStrategy.DOCKER, BuildStrategy.CLOUD_BUILD)
    if not is_built or listed is None or not listed.lines or listed.runtime.script:
        return [], ()
    if offline:
        return [], (("packages", "not resolved: offline"),)
    problems, result = requirements.resolve(listed)
    return problems, (("packages", result),)


def _check_code_of_named_image(
    launch: LaunchRequest, bundled: Trainer
) -> tuple[DataPlan | None, list[Problem]]:
    """Return what is known of the data, and warnings: the image may have other code and files."""
    job = launch.job
    launch = replace(launch, job=replace(job, image=replace(job.image, uri=None)))
    unknown = ImageRuntime(None, None, is_plain=False, own=OwnDockerfile("", ""))
    plan, problems = data.check_data(launch, job_request(launch), bundled, (), unknown)
    problems += trainer.code_problems(bundled, job, launch.folder)
    return plan, [replace(problem, severity="warning") for problem in problems]


def _offers(
    launch: LaunchRequest, options: CheckOptions, catalogue: Catalogue, today: date
) -> tuple[price.MachineOption, ...]:
    if not options.compare:
        return ()
    request = job_request(launch)
    prices = price.load_prices(request, launch.folder, options.prices)
    return price.compare_machines(request, catalogue, prices, today)


def skip_checks(launch: LaunchRequest, options: CheckOptions) -> Report:
    """Return the plan with an estimated price, and whether it keeps the limit on the price."""
    report = Report(job_request(launch), launch.job.cluster.describe(), is_checked=False)
    if launch.job.is_on_slurm:
        location = f"on Slurm, in {launch.job.slurm.folder or 'no folder'}"
        report = replace(report, engine="slurm", location=location)
    else:
        prices = price.price_choices(launch, options.prices)
        report = replace(report, image=check_image(launch).plan, choices=prices)
    return replace(report, problems=_sorted(cost_limit.problems(launch, report.choices), launch))


def _connect(launch: LaunchRequest, problems: list[Problem]) -> Session | None:
    """Return a session, or None after adding the reason to the problems."""
    from distlaunch.engines.vertex.client import connect

    try:
        return connect(launch.endpoint, project=launch.job.project)
    except GoogleError as problem:
        from distlaunch.checks.cloud import no_credentials

        problems.append(no_credentials(problem))
        return None


def _with_reservation(
    launch: LaunchRequest, session: Session, problems: list[Problem]
) -> LaunchRequest:
    """Return a launch with the zone of its reservation, or add the reason to the problems."""
    from distlaunch.checks.cloud import not_checked
    from distlaunch.engines.vertex.reservations import with_zone

    try:
        return with_zone(launch, session)
    except GoogleError as refusal:
        is_missing = refusal.status == HTTPStatus.NOT_FOUND
        missing = error("reservation-missing", "reservation", refusal.what, refusal.remedy)
        problems.append(missing if is_missing else not_checked("reservation", refusal))
        return launch


def _cloud_problems(
    launch: LaunchRequest, request: JobRequest, session: Session | None, catalogue: Catalogue
) -> list[Problem]:
    if session is None or launch.is_for_emulator:  # which has no project with quotas
        return []
    from distlaunch.checks import cloud

    return cloud.problems(launch, request, session, catalogue)


def _message_problems(launch: LaunchRequest, request: JobRequest) -> Iterator[Problem]:
    """Validate a request with fields or words that were passed on unread by Google's messages."""
    accelerators = {pool.accelerator for pool in request.pools} - {None}
    is_plain = not launch.job.vertex and launch.job.tuning is None
    if is_plain and accelerators <= machine_catalogue.bundled().accelerators:
        return  # without the messages, whose import takes time
    from distlaunch.job.vertex import proto

    try:
        proto.validate_request(
            vertex.collection(launch.job), launch.request("check", image="image")
        )
    except JobFileError as refusal:
        file = "distlaunch.yaml under vertex:" if launch.config is None else str(launch.config)
        for each in refusal.problems:
            if not each.where.endswith(".acceleratorType"):  # of which `machines` warns
                where = each.where or request.spec
                yield error("request-invalid", where, each.what, f"correct it in {file}")


def project_problems(
    launch: LaunchRequest,
    request: JobRequest,
    listed: ImageRequirements,
    files: Collection[str] | None,
    bundled: Trainer | None,
) -> Iterator[Problem]:
    """Yield the problems of the code and the requirements of a project whose image is built.

    `files` are the project's files in the image, as POSIX paths relative to the folder; None if the
    image cannot be built. `bundled` is None for another program than the bundled trainer.
    """
    job, runtime = launch.job, listed.runtime
    if files is not None:
        starts = imports.started_modules(job, launch.folder, bundled)
        path = job.env.get("PYTHONPATH", "")
        code = imports.ProjectCode(launch.folder, files, starts, listed, runtime, path)
        yield from imports.syntax_problems(code)
        yield from image_runtime.trainer_problems(runtime, launch.folder, files, job.main[0])
        if not any(each in path for each in "/$") and runtime.own is None:
            yield from imports.start_problems(code, job)
            if not bundled and not job.is_script:
                yield from fit_calls.fit_problems(launch.folder, job.module, request)
    if runtime.own is None or runtime.own.names(listed.file):
        yield from requirements.problems(listed)
    pools = [pool for choice in launch.choices for pool in job_request(choice).pools]
    yield from gpus.build_problems(listed, replace(request, pools=tuple(pools)))
    yield from trainer.script_problems(job)
    if bundled:
        yield from trainer.problems(bundled, job, request, listed, launch.folder)


def _sorted(problems: Iterable[Problem], launch: LaunchRequest) -> tuple[Problem, ...]:
    """Return each problem once, with the code of the last check that found it, errors first."""
    located = source_location.locate(problems, launch)
    unique = {(problem.where, problem.what): problem for problem in located}
    return tuple(sorted(unique.values(), key=lambda problem: problem.severity != "error"))
