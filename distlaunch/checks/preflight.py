"""An order → a report: everything that can be known before a submit, all at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from distlaunch.background import Meanwhile
from distlaunch.checks import (
    gpus,
    limits,
    machines,
    price,
    required_fields,
    run,
    source_location,
    trainer,
)
from distlaunch.checks.image_plan import check_image
from distlaunch.checks.problem import error
from distlaunch.checks.report import Report
from distlaunch.checks.request_view import job_request
from distlaunch.errors import GoogleError, JobFileError
from distlaunch.job import machine_catalogue, vertex

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.data import DataFacts
    from distlaunch.checks.problem import Problem
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.checks.trainer import Trainer
    from distlaunch.google.client import Session
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.submit.plan import Order


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How far to look.

    Parameters
    ----------
    offline
        Whether nobody is to be asked, neither Google nor a registry.
    run
        Whether a step is to be run on this machine.
    compare
        Whether other machines are to be looked at.
    catalogue, prices
        Files of the user's own, None for those in the project's folder, if any.
    """

    offline: bool = False
    run: bool = False
    compare: bool = False
    catalogue: Path | None = None
    prices: Path | None = None


def run_checks(order: Order, scope: CheckOptions, *, session: Session | None = None) -> Report:
    """Find out what there is to know of a job; nothing is built, pushed or made.

    Parameters
    ----------
    order
        What is to be launched.
    scope
        How far to look.
    session
        What Google is asked through; one with the credentials that are there, if not given.

    Raises
    ------
    DistlaunchError
        If a catalogue or a price file of the user's own cannot be read.
    """
    wanted, today = job_request(order), date.today()  # noqa: DTZ011 - the day that the user has
    known = machine_catalogue.load(
        scope.catalogue or _there(order.folder / machine_catalogue.FILE_NAME)
    )
    file = scope.prices or _there(order.folder / price.FILE_NAME)
    unknown: list[Problem] = []
    if order.is_for_emulator:
        session = None  # the emulator runs jobs; it is no project with quotas and prices
    elif session is None and not scope.offline:
        session, unknown = _session(order)
    prices = Meanwhile(lambda: price.prices(wanted, session=session, file=file))
    cloud = Meanwhile(lambda: _online(order, wanted, session, known))
    of_request = Meanwhile(lambda: list(_of_request(order, wanted)))
    making = check_image(order, offline=scope.offline)
    bundled = trainer.find(order)
    data, of_project = _project(order, wanted, making.files, known, bundled)
    found = [
        *required_fields.problems(order),
        *of_request.result(),
        *machines.problems(wanted, known, today),
        *limits.problems(wanted),
        *gpus.problems(order, wanted, today),
        *(() if bundled else gpus.unequal(wanted)),
        *making.problems,
        *of_project,
        *(run.problems(order, bundled) if scope.run else ()),
        *unknown,
        *cloud.result(),
    ]
    return Report(
        asked=wanted,
        cluster=order.job.cluster.describe(),
        problems=_in_order(source_location.locate(found, order)),
        image=making.plan,
        asks_registry=making.is_asked,
        data=data,
        cost=price.cost(wanted, known, prices.result()),
        offers=price.compare(wanted, known, prices.result(), today) if scope.compare else (),
        is_emulated=order.is_for_emulator,
    )


def skip_checks(order: Order) -> Report:
    """Return the plan of a job alone, for who insists."""
    making = check_image(order)
    cluster = order.job.cluster.describe()
    return Report(job_request(order), cluster, image=making.plan, is_checked=False)


def _session(order: Order) -> tuple[Session | None, list[Problem]]:
    """Return what Google is asked through, or why it is not asked."""
    from distlaunch.google.client import connect

    try:
        return connect(order.endpoint, project=order.job.project), []
    except GoogleError as problem:
        from distlaunch.checks.cloud import no_credentials

        return None, [no_credentials(problem)]


def _online(
    order: Order, wanted: JobRequest, session: Session | None, known: Catalogue
) -> list[Problem]:
    if session is None:
        return []
    from distlaunch.checks import cloud

    return cloud.problems(order, wanted, session, known)


def _of_request(order: Order, wanted: JobRequest) -> Iterator[Problem]:
    """Hold the request against Google's own messages.

    They take 0.06 s to import, and are left alone where all words of Google's are known ones.
    """
    accelerators = {pool.accelerator for pool in wanted.pools} - {None}
    is_plain = not order.job.vertex and order.job.tuning is None
    if is_plain and accelerators <= machine_catalogue.bundled().accelerators:
        return
    from distlaunch.job.vertex import messages

    try:
        messages.check(vertex.collection(order.job), order.request("check", image="image"))
    except JobFileError as refusal:
        for line in refusal.lines:
            where, _, what = line.partition(": ")
            if where.endswith(".acceleratorType"):
                continue  # Google may have new ones, of which `machines` tells
            yield error(
                "request-invalid",
                where,
                what,
                "mend it under vertex: in distlaunch.yaml, or in the file of --config",
            )


def _project(
    order: Order,
    wanted: JobRequest,
    files: Collection[str] | None,
    known: Catalogue,
    bundled: Trainer | None,
) -> tuple[DataFacts | None, list[Problem]]:
    """Look at the project's folder, where the image is made from it.

    Which files go into the image is not known where something keeps it from being made.
    """
    if not vertex.needs_image(order.job):
        return None, []
    from distlaunch.checks import data, project

    of_folder = list(project.problems(order, wanted, files, bundled))
    if files is None:
        return None, of_folder
    facts, of_data = data.look(order, wanted, bundled, files, known)
    return facts, [*of_folder, *of_data]


def _there(path: Path) -> Path | None:
    return path if path.exists() else None


def _in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return each problem once, by the code of who looked closest, the errors first."""
    once = {(each.where, each.what): each for each in problems}
    return tuple(sorted(once.values(), key=lambda each: each.severity != "error"))
