"""Runs all checks of a job before a submit and returns one report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from distlaunch.background import BackgroundTask
from distlaunch.checks import limits, machines, price, required_fields, source_location, trainer
from distlaunch.checks.image_plan import check_image
from distlaunch.checks.problem import error
from distlaunch.checks.project import gpus
from distlaunch.checks.project.image_runtime import describe_image
from distlaunch.checks.report import Report
from distlaunch.checks.request_view import job_request
from distlaunch.errors import GoogleError, JobFileError
from distlaunch.job import machine_catalogue, vertex

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.data import DataPlan
    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.checks.trainer import Trainer
    from distlaunch.google.client import Session
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.submit.plan import LaunchRequest


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What to check.

    Parameters
    ----------
    offline
        Whether to contact neither Google nor a registry.
    run
        Whether to train one step on this machine.
    compare
        Whether to list other machines.
    catalogue, prices
        The user's files; None for those in the project's folder, if there are any.
    """

    offline: bool = False
    run: bool = False
    compare: bool = False
    catalogue: Path | None = None
    prices: Path | None = None


def run_checks(
    order: LaunchRequest, options: CheckOptions, *, session: Session | None = None
) -> Report:
    """Check a job; nothing is built, pushed or created.

    Parameters
    ----------
    session
        Calls Google's APIs; by default one with the credentials of this machine.

    Raises
    ------
    DistlaunchError
        If the user's catalogue or price file cannot be read.
    """
    request, today = job_request(order), date.today()  # noqa: DTZ011 - the user's date
    catalogue = machine_catalogue.load(
        options.catalogue or _existing(order.folder / machine_catalogue.FILE_NAME)
    )
    price_file = options.prices or _existing(order.folder / price.FILE_NAME)
    not_connected: list[Problem] = []
    if order.is_for_emulator:
        session = None  # it runs jobs, and has no project with quotas and prices
    elif session is None and not options.offline:
        session, not_connected = _connect(order)
    prices = BackgroundTask(lambda: price.load_prices(request, session=session, file=price_file))
    cloud = BackgroundTask(lambda: _cloud_problems(order, request, session, catalogue))
    message = BackgroundTask(lambda: list(_message_problems(order, request)))
    image = check_image(order, offline=options.offline)
    bundled = trainer.find_trainer(order)
    runtime = describe_image(order) if vertex.needs_image(order.job) else None
    run_problems = (
        trainer.run_one_step(order, bundled) if options.run else []
    )  # records the data, too
    data, project_problems = _check_project(order, request, runtime, image.files, bundled)
    problems = [
        *required_fields.problems(order),
        *message.result(),
        *machines.problems(request, catalogue, today),
        *limits.problems(request),
        *gpus.problems(order, request, runtime, today),
        *gpus.unequal(request, is_bundled=bundled is not None),
        *image.problems,
        *project_problems,
        *run_problems,
        *not_connected,
        *cloud.result(),
    ]
    return Report(
        request=request,
        cluster=order.job.cluster.describe(),
        problems=_sorted(source_location.locate(problems, order)),
        image=image.plan,
        registry_contacted=image.registry_contacted,
        data=data,
        cost=price.estimate_cost(request, catalogue, prices.result()),
        offers=(
            price.compare_machines(request, catalogue, prices.result(), today)
            if options.compare
            else ()
        ),
        is_emulated=order.is_for_emulator,
        changed_task=bundled.changed_task if bundled else "",
    )


def skip_checks(order: LaunchRequest) -> Report:
    """Return the plan alone, for ``--no-check``."""
    cluster, image = order.job.cluster.describe(), check_image(order).plan
    return Report(job_request(order), cluster, image=image, is_checked=False)


def _connect(order: LaunchRequest) -> tuple[Session | None, list[Problem]]:
    """Return a session, or None and the reason."""
    from distlaunch.google.client import connect

    try:
        return connect(order.endpoint, project=order.job.project), []
    except GoogleError as problem:
        from distlaunch.checks.cloud import no_credentials

        return None, [no_credentials(problem)]


def _cloud_problems(
    order: LaunchRequest, request: JobRequest, session: Session | None, catalogue: Catalogue
) -> list[Problem]:
    if session is None:
        return []
    from distlaunch.checks import cloud

    return cloud.problems(order, request, session, catalogue)


def _message_problems(order: LaunchRequest, request: JobRequest) -> Iterator[Problem]:
    """Validate the request against Google's protobuf messages.

    Their import takes 0.06 s; it is left out if the job passes no field or word to Google unread.
    """
    accelerators = {pool.accelerator for pool in request.pools} - {None}
    is_plain = not order.job.vertex and order.job.tuning is None
    if is_plain and accelerators <= machine_catalogue.bundled().accelerators:
        return
    from distlaunch.job.vertex import proto

    try:
        proto.validate_request(vertex.collection(order.job), order.request("check", image="image"))
    except JobFileError as refusal:
        for line in refusal.lines:
            field, _, message = line.partition(": ")
            if field.endswith(".acceleratorType"):
                continue  # a warning of `machines`, as Google may have new ones
            file = "distlaunch.yaml under vertex:" if order.config is None else str(order.config)
            yield error("request-invalid", field, message, f"correct it in {file}")


def _check_project(
    order: LaunchRequest,
    request: JobRequest,
    runtime: ImageRuntime | None,
    files: Collection[str] | None,
    bundled: Trainer | None,
) -> tuple[DataPlan | None, list[Problem]]:
    """Check the project's files and data, where the image is made from them."""
    if runtime is None:
        return None, []
    from distlaunch.checks import data, project

    problems = list(project.problems(order, request, runtime, files, bundled))
    if files is None:
        return None, problems
    plan, data_problems = data.check_data(order, request, bundled, files, runtime)
    return plan, [*problems, *data_problems]


def _existing(path: Path) -> Path | None:
    return path if path.exists() else None


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return each problem once, with the code of the last check that found it, errors first."""
    unique = {(problem.where, problem.what): problem for problem in problems}
    return tuple(sorted(unique.values(), key=lambda problem: problem.severity != "error"))
