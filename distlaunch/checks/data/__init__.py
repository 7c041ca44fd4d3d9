"""The data of the bundled trainer against the cluster, as far as its source says where they are.

Nothing of the project is run. What ``data.py`` gives is found by reading (`source`), where the
files are by looking (`places`), how many records they hold by counting (`records`), and what comes
of them on the cluster by the trainer's own arithmetic (`dealing`, `fitting`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.checks.data import cluster_fit, records, sharding, source
from distlaunch.checks.data.facts import DataFacts
from distlaunch.checks.data.location import Places
from distlaunch.checks.data.sharding import Dealing
from distlaunch.checks.problem import Problem, error, warning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.data.cluster_fit import Machines
    from distlaunch.checks.data.records import Counted, Damage
    from distlaunch.checks.data.sharding import Told
    from distlaunch.checks.data.source import Source
    from distlaunch.checks.data.values import Given
    from distlaunch.checks.request_view import JobRequest
    from distlaunch.checks.trainer import Trainer
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.model import Job
    from distlaunch.submit.plan import Order

__all__ = ["DataFacts", "look"]

_TUNABLE = ("batch-size", "global-batch-size", "shards", "steps-per-epoch")


def look(
    order: Order,
    asked: JobRequest,
    trainer: Trainer | None,
    files: Collection[str],
    catalogue: Catalogue,
) -> tuple[DataFacts | None, list[Problem]]:
    """Return what is known of a job's data, and what speaks against them.

    Parameters
    ----------
    trainer
        The bundled trainer, None where the program is another: nothing is known of its data then.
    files
        The project's files that go into the image: posix paths, relative to its folder.
    catalogue
        What is known of machines. Where one does not take as many GPUs, the data are not held
        against their number: another is to be found first.
    """
    from distlaunch.checks.project import image_runtime

    if trainer is None:
        return None, []
    around = image_runtime.of(order)
    found = source.read(order.folder, order.job, trainer, is_all=around.own_dockerfile is None)
    if found is None:
        return None, []
    places = Places(order, frozenset(files), around)
    machines = cluster_fit.machines(asked)
    looked = _Looked(found, places)
    told = None if _is_tuned(order.job) else sharding.told(trainer.options)
    if machines is None or told is None:
        return None, _shown(looked.problems)
    deal = _dealing(found, told, machines, looked.training)
    problems = looked.problems
    if cluster_fit.can_be(asked, catalogue):
        problems += _misfits(found, deal, told, machines, looked)
    return _facts(deal, told, looked.training), _shown(problems)


class _Looked:
    """What is found of the files that the data are in."""

    def __init__(self, found: Source, places: Places) -> None:
        self.problems = [] if found.acts else list(places.handed(found.handed))
        self._places = places
        self._is_sure = not found.acts
        self._until = time.monotonic() + records.SECONDS
        self.training = self._count(found.given.get("training"))
        self.validation = self._count(found.given.get("validation"))

    def _count(self, given: Given | None) -> Counted | None:
        if given is None or given.pattern is None:
            return None
        found = self._places.look(given.pattern, given.where)
        if found.problem and (self._is_sure or found.is_lasting):
            self.problems.append(found.problem)
        if found.files is None:
            return None
        counted = records.count(found.files, until=self._until)
        self.problems += [*self._unreadable(counted), *self._empty(counted)]
        return counted

    def _unreadable(self, counted: Counted) -> Iterator[Problem]:
        """Yield what is wrong with files: that which the trainer refuses, and that which it may."""
        is_sure = self._is_sure and self._places.around.own_dockerfile is None
        surely = [each for each in counted.damaged if is_sure and each.is_sure]
        perhaps = [each for each in counted.damaged if each not in surely]
        for make, damaged in ((error, surely), (warning, perhaps)):
            if damaged:
                yield make(
                    "data-unreadable",
                    self._place(damaged[0].path),
                    f"{damaged[0].what}{_and_more(damaged)}",
                    "write the file anew, or take it out of the pattern",
                )

    def _empty(self, counted: Counted) -> Iterator[Problem]:
        """Yield a warning of empty files among others."""
        others = len(counted.empty) - 1
        if not 0 <= others < counted.files - 1:
            return
        more = f", and so are {others:,} more of the {counted.files:,} files of the pattern"
        yield warning(
            "data-empty",
            self._place(counted.empty[0]),
            f"the file is empty{more if others else ''}",
            "write it again if it should hold examples",
        )

    def _place(self, path: Path) -> str:
        folder = self._places.order.folder
        return (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()


def _and_more(damaged: list[Damage]) -> str:
    others = len(damaged) - 1
    return f", nor can {others:,} more files of the pattern be read" if others else ""


def _shown(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems in one line each, whatever characters the names of files have."""
    return [
        replace(
            each,
            where=_printable(each.where),
            what=_printable(each.what),
            remedy=_printable(each.remedy),
        )
        for each in problems
    ]


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _is_tuned(job: Job) -> bool:
    """Whether trials differ in what the arithmetic takes."""
    return job.tuning is not None and not job.tuning.parameters.keys().isdisjoint(_TUNABLE)


def _dealing(found: Source, told: Told, machines: Machines, counted: Counted | None) -> Dealing:
    replicas, given = machines.replicas, found.given.get("training")
    if found.is_own:
        return Dealing(replicas, given.batch if given else None, shards=None)
    batch = told.global_batch or (told.batch or sharding.BATCH) * replicas
    examples = counted.records if counted else None
    return Dealing(replicas, batch, told.shards or sharding.SHARDS, examples)


def _misfits(
    found: Source, deal: Dealing, told: Told, machines: Machines, looked: _Looked
) -> Iterator[Problem]:
    """Yield what the trainer refuses, or warns of."""
    yield from cluster_fit.of_cluster(deal, told, machines)
    training, validation = found.given.get("training"), found.given.get("validation")
    if training and found.is_own:
        yield from cluster_fit.of_own_batch(deal, told, training.where)
    if training and looked.training:
        if looked.training.is_all:
            yield from cluster_fit.of_examples(deal, training.where, machines, "training")
        yield from cluster_fit.of_steps(deal, told, is_all=looked.training.is_all)
    if validation and looked.validation and looked.validation.is_all:
        held_out = Dealing(machines.replicas, None, examples=looked.validation.records)
        yield from cluster_fit.of_examples(held_out, validation.where, machines, "validation")


def _facts(deal: Dealing, told: Told, counted: Counted | None) -> DataFacts:
    is_all = counted is None or counted.is_all
    return DataFacts(
        files=counted.files if counted else None,
        examples=deal.examples,
        is_all=is_all,
        replicas=deal.replicas,
        global_batch=deal.global_batch,
        steps_per_epoch=told.steps or (deal.steps if is_all else None),
        rows=deal.rows,
        last_rows=None if told.steps or not is_all else deal.last_rows,
        shards=deal.shards,
    )
