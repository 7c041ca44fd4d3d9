"""The clusters that a project could run on: machines, prices and what they would take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.checks.price import FILE_NAME as PRICES
from distlaunch.checks.price import estimate_cost, load_prices
from distlaunch.checks.request_view import JobRequest, PoolRequest
from distlaunch.errors import DistlaunchError
from distlaunch.forecast.fit import Target
from distlaunch.forecast.measured import LOCAL
from distlaunch.forecast.report import Price, forecast_shape
from distlaunch.job import machine_catalogue, reduction_server
from distlaunch.job.load import FILE_NAME, load_job_file
from distlaunch.job.model import Cluster, Machine, Pool
from distlaunch.local.host_resources import this_machine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from distlaunch.forecast.measured import MeasuredRun
    from distlaunch.forecast.report import Shape
    from distlaunch.job.model import Job

_US = "us-central1"


class Clusters:
    """Forecasts with the job file, the catalogue and the prices of a project.

    Parameters
    ----------
    project
        The folder; it need not have a job file.
    region
        Replaces that of the job file.
    """

    def __init__(self, project: Path, region: str | None = None, job: Job | None = None) -> None:
        path = project / FILE_NAME
        self._project = project
        self._job = job or (load_job_file(path, []) if path.exists() else None)
        self._region = region or (self._job.region if self._job else None) or _US
        own = project / machine_catalogue.FILE_NAME
        self._catalogue = machine_catalogue.load(own if own.exists() else None)

    def target(self, name: str, accelerator: str | None = None, count: int = 0) -> Target:
        """Return a machine of the catalogue, or `LOCAL`; DistlaunchError if it is unknown."""
        if name == LOCAL:
            return Target(Machine(LOCAL), len(this_machine({}).cores))
        kind = self._catalogue.machines.get(name)
        if kind is None:
            hint = machine_catalogue.suggest_machine(name, self._catalogue.machines)
            raise DistlaunchError(f"--machine {name}: unknown machine type{hint}")
        if accelerator and not kind.takes(accelerator, count):
            hint = machine_catalogue.suggest_accelerator(accelerator, kind.accelerators)
            raise DistlaunchError(f"--machine {name}: does not take {count} {accelerator}{hint}")
        if accelerator is None and kind.needs_accelerator:
            accelerator, counts = next(iter(kind.accelerators.items()))
            count = counts[0]
        if kind.has_tpu:
            raise DistlaunchError(f"--machine {name}: steps on TPUs are not measured")
        return Target(Machine(name, accelerator, count), kind.cpus or 1)

    def default(self) -> Target:
        """Return the machine of the job file's chief, this machine where there is none."""
        if self._job is None:
            return self.target(LOCAL)
        machine = self._job.cluster.chief.machine
        return self.target(machine.type, machine.accelerator, machine.accelerator_count)

    def forecast_all(
        self,
        runs: Sequence[MeasuredRun],
        targets: Sequence[Target],
        workers: Sequence[int],
        *,
        batch: float | None = None,
        epochs: int | None = None,
    ) -> tuple[list[Shape], list[str]]:
        """Return the forecasts that the runs allow, and why they do not allow others."""
        shapes: list[Shape] = []
        refusals: list[str] = []

        def add(target: Target, count: int) -> None:
            try:
                shapes.append(self.forecast(runs, target, count, batch=batch, epochs=epochs))
            except DistlaunchError as refusal:
                refusals.append(str(refusal))

        for target in targets:
            for count in workers:
                add(target, count)
        return shapes, list(dict.fromkeys(refusals))

    def forecast(
        self,
        runs: Sequence[MeasuredRun],
        target: Target,
        workers: int,
        *,
        batch: float | None = None,
        epochs: int | None = None,
    ) -> Shape:
        """Return what a cluster would take; DistlaunchError where the runs do not tell it."""
        has_servers = bool(self._job and self._job.reduction_server and target.machine.gpu_count)
        return forecast_shape(
            runs,
            target,
            workers,
            batch=batch,
            epochs=epochs,
            price=None if target.is_local else self._price(target, workers, has_servers),
            has_servers=has_servers,
        )

    def _price(self, target: Target, workers: int, has_servers: bool) -> Price:
        machine = target.machine
        of_task = machine.type, machine.accelerator, machine.accelerator_count
        pools = [PoolRequest("chief", workers, *of_task)]
        if has_servers and self._job:
            cluster = Cluster(Pool(machine)).with_training_tasks(workers)
            count = reduction_server.replica_count(replace(self._job, cluster=cluster))
            pools.append(PoolRequest(reduction_server.KEY, count, reduction_server.MACHINE))
        strategy = self._job.scheduling.strategy if self._job else "STANDARD"
        request = JobRequest("forecast", "", self._region, tuple(pools), strategy)
        own = self._project / PRICES
        prices = load_prices(request, session=None, file=own if own.exists() else None)
        cost = estimate_cost(request, self._catalogue, prices)
        source = f"{', '.join(cost.sources)} in {self._region}"
        if cost.an_hour is None:
            source = f"unknown for {', '.join(cost.unknown)} in {self._region}: {cost.why}"
        an_hour = None if cost.an_hour is None else float(cost.an_hour)
        return Price(an_hour, cost.currency, source, cost.is_estimate)
