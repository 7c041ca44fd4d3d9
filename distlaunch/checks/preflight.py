"""Runs all checks of a job before a submit and returns one report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from distlaunch import price
from distlaunch.background import BackgroundTask
from distlaunch.checks import (
    capacity,
    cost_limit,
    data,
    limits,
    machines,
    required_fields,
    source_location,
    trainer,
)
from distlaunch.checks.problem import error, warning
from distlaunch.checks.project import (
    dockerfile,
    fit_calls,
    gpus,
    image_runtime,
    imports,
    requirements,
)
from distlaunch.checks.report import Report
from distlaunch.errors import GoogleError, ImageError, JobFileError

# Imported before any thread starts: two threads that import one package can deadlock.
from distlaunch.image import plan_image
from distlaunch.image.build import build_secrets
from distlaunch.image.cloud_build import API, secrets_refusal
from distlaunch.image.context import paths
from distlaunch.image.plan import BuildStrategy
from distlaunch.image.recipe import read_recipe
from distlaunch.image.registry import RegistryUnreachable
from distlaunch.job import machine_catalogue, vertex
from distlaunch.job.choices import job_choices
from distlaunch.job.vertex.view import job_request

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.trainer import Trainer
    from distlaunch.engines.vertex.client import Session
    from distlaunch.errors import Diagnostic
    from distlaunch.image import ImagePlan
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.vertex.view import JobRequest

_REGISTRY_TIMEOUT = 8.0  # seconds for all look-ups of the bases, and for those of the image
_FIRST_LINE = "training begins with the line 'chief | strategy: …', after the image is pulled"


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What to check."""

    offline: bool = False  # contacts neither Google nor a registry
    run: bool = False  # trains one step on this machine
    compare: bool = False  # lists other machines
    catalogue: Path | None = None  # the user's; None for that in the project's folder, if any
    prices: Path | None = None  # likewise


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
    request, today = job_request(launch), date.today()  # noqa: DTZ011 - the user's date
    catalogue = machine_catalogue.of_project(launch.folder, options.catalogue)
    problems = list(required_fields.problems(launch))
    if launch.is_for_emulator:
        session = None  # it runs jobs, and has no project with quotas
    elif session is None and not options.offline:
        session = _connect(launch, problems)
    book = price.load_prices(request, launch.folder, options.prices)
    choices = price.price_choices(launch, catalogue, options.prices)
    cloud = BackgroundTask(lambda: _cloud_problems(launch, request, session, catalogue))
    message = BackgroundTask(lambda: list(_message_problems(launch, request)))
    image = check_image(launch, offline=options.offline)
    bundled = trainer.find_trainer(launch)
    if options.run:  # records the data, too
        problems += trainer.run_one_step(launch, bundled)
    runtime = image_runtime.describe_image(launch) if vertex.needs_image(launch.job) else None
    problems += message.result()
    for choice in choices:
        found = [
            *machines.problems(choice.request, catalogue, today),
            *limits.problems(choice.request, catalogue, launch.next_regions),
            *gpus.problems(launch, choice.request, catalogue, runtime, today),
            *gpus.unequal(choice.request, is_bundled=bundled is not None),
        ]
        problems += (replace(each, where=choice.where(each.where)) for each in found)
    if launch.is_for_emulator:
        remedy = "'distlaunch shell' prints how to look into its tasks"
        problems += limits.ignored_web_access(request, "in the emulator", remedy)
    problems += gpus.idle_stop(launch.job, is_bundled=bundled is not None)
    problems += capacity.move_problems(request, [choice.request for choice in choices[1:]])
    problems += _left_out(launch)
    problems += cost_limit.problems(launch, choices)
    problems += image.problems
    plan = None
    if runtime:
        problems += project_problems(launch, request, runtime, image.files, bundled)
        if image.files is not None:
            plan, data_problems = data.check_data(launch, request, bundled, image.files, runtime)
            problems += data_problems
    full_build = image.plan is None or image.plan.strategy == BuildStrategy.CLOUD_BUILD
    problems += [each for each in cloud.result() if full_build or each.where != API]
    offers = price.compare_machines(request, catalogue, book, today) if options.compare else ()
    return Report(
        request=request,
        cluster=launch.job.cluster.describe(),
        problems=_sorted(source_location.locate(problems, launch)),
        image=image.plan,
        registry_contacted=image.registry_contacted,
        data=plan,
        cost=choices[0].cost,
        choices=choices,
        offers=offers,
        first_line=_FIRST_LINE if bundled else "",
        is_emulated=launch.is_for_emulator,
        changed_task=bundled.changed_task if bundled else "",
    )


def _left_out(launch: LaunchRequest) -> Iterator[Problem]:
    """Yield the machines that are not tried in a region, as it does not offer them."""
    tried = [choice.job for choice in launch.choices]
    for job in job_choices(launch.job):
        if job not in tried:
            machines = job_request(replace(launch, job=job)).machines
            what = f"{machines} is not tried in {job.region}, which does not offer it for training"
            remedy = f"leave it so, or replace {job.region} in scheduling.regions"
            yield warning("machines-left-out", "scheduling.machines", what, remedy)


def skip_checks(launch: LaunchRequest, options: CheckOptions) -> Report:
    """Return the plan with an estimated price, and whether it keeps the limit on the price."""
    cluster, request = launch.job.cluster.describe(), job_request(launch)
    if launch.job.is_on_slurm:
        location = f"on Slurm, in {launch.job.slurm.folder or 'no folder'}"
        problems = _sorted(source_location.locate(cost_limit.problems(launch, ()), launch))
        return Report(
            request, cluster, problems, is_checked=False, engine="slurm", location=location
        )
    catalogue = machine_catalogue.of_project(launch.folder, options.catalogue)
    choices = price.price_choices(launch, catalogue, options.prices)
    return Report(
        request,
        cluster,
        problems=_sorted(source_location.locate(cost_limit.problems(launch, choices), launch)),
        image=check_image(launch).plan,
        is_checked=False,
        cost=choices[0].cost,
        choices=choices,
    )


def _connect(launch: LaunchRequest, problems: list[Problem]) -> Session | None:
    """Return a session, or None after adding the reason to the problems."""
    from distlaunch.engines.vertex.client import connect

    try:
        return connect(launch.endpoint, project=launch.job.project)
    except GoogleError as problem:
        from distlaunch.checks.cloud import no_credentials

        problems.append(no_credentials(problem))
        return None


def _cloud_problems(
    launch: LaunchRequest, request: JobRequest, session: Session | None, catalogue: Catalogue
) -> list[Problem]:
    if session is None:
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
    runtime: ImageRuntime,
    files: Collection[str] | None,
    bundled: Trainer | None,
) -> Iterator[Problem]:
    """Yield the problems of the code and the requirements of a project whose image is built.

    `files` are the project's files in the image, as POSIX paths relative to the folder; None if the
    image cannot be built. `bundled` is None for another program than the bundled trainer.
    """
    job = launch.job
    listed = requirements.load_requirements(job, launch.folder, runtime)
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
    if bundled:
        yield from trainer.problems(bundled, job, request, listed, launch.folder)


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return each problem once, with the code of the last check that found it, errors first."""
    unique = {(problem.where, problem.what): problem for problem in problems}
    return tuple(sorted(unique.values(), key=lambda problem: problem.severity != "error"))


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """How a job's image would be made.

    `files` are the project's files in it, None where they are unknown, and `registry_contacted` is
    whether `plan` takes into account what the registry has.
    """

    plan: ImagePlan | None = None
    files: frozenset[str] | None = None
    problems: tuple[Problem, ...] = ()
    registry_contacted: bool = True


def check_image(launch: LaunchRequest, *, offline: bool = False) -> ImageCheck:
    """Return how a job's image would be made; nothing is built."""
    job, push = launch.job, not offline and launch.job.image.repository is not None
    if not vertex.needs_image(job):
        return ImageCheck(plan_image(job, launch.folder) if job.image.uri else None)
    problems: list[Problem] = []
    try:
        try:
            plan = plan_image(job, launch.folder, push=push, timeout=_REGISTRY_TIMEOUT)
        except RegistryUnreachable as problem:
            push = False
            where = "image.base" if job.image.base and problem.is_of_base else "image.repository"
            remedy = "'distlaunch submit' needs it"
            problems.append(warning("registry-unreachable", where, str(problem), remedy))
            plan = plan_image(job, launch.folder, push=False)
    except ImageError as refusal:
        problems += map(_refusal, refusal.problems)
        return ImageCheck(None, _files_of_recipe(launch), tuple(problems))
    if plan.inputs is None:
        return ImageCheck(plan, frozenset(), tuple(problems), registry_contacted=push)
    context = plan.inputs.context
    files = frozenset(file.path for file in context.files)
    problems += dockerfile.image_problems(job, plan.inputs)
    is_full_build = plan.strategy in (BuildStrategy.CLOUD_BUILD, BuildStrategy.DOCKER)
    in_cloud = is_full_build and job.image.builder == "cloud-build"
    if mounted := build_secrets(plan.inputs) if in_cloud else {}:
        secret = secrets_refusal(mounted)
        problems.append(error("cloud-build-secrets", secret.where, secret.what, secret.remedy))
    if large := context.report():
        problems.append(warning("context-large", "image.include", large.what, large.remedy))
    if pointers := context.lfs_pointers:
        what = f"is a pointer of Git LFS, without the content ({len(pointers)} such files)"
        problems.append(warning("lfs-pointer", pointers[0], what, "run 'git lfs pull'"))
    return ImageCheck(plan, files, tuple(problems), registry_contacted=push)


def _refusal(refusal: Diagnostic) -> Problem:
    """Return the problem of an image that cannot be made."""
    missing = {"module": "module", "script": "script", "script_module": "module"}
    is_program = refusal.where in missing
    code = f"{missing[refusal.where]}-missing" if is_program else "image-refused"
    remedy = refusal.remedy or "fix it, or name an image with --image"
    return error(code, refusal.where or "image", refusal.what, remedy)


def _files_of_recipe(launch: LaunchRequest) -> frozenset[str] | None:
    """Return the files that would be in an image that cannot be made, None if that is unknown."""
    try:
        return frozenset(paths(launch.folder, read_recipe(launch.job, launch.folder).ignore))
    except ImageError:
        return None
