"""The machines and regions that a job may try, each as a job of its own."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.job import reservation
from distlaunch.job.vertex import fields

if TYPE_CHECKING:
    from distlaunch.job.model import Cluster, Job


def job_choices(job: Job) -> tuple[Job, ...]:
    """Return the jobs to try: this one, then those on other machines and in other regions."""
    scheduling, clusters = job.scheduling, job.clusters
    if job.is_on_slurm or not scheduling.may_move:
        return (job,)
    regions = tuple(dict.fromkeys((job.region, *scheduling.regions)))
    pairs = [(region, cluster) for region in regions for cluster in clusters]
    if scheduling.on_stockout == "next-region":
        pairs = [(region, cluster) for cluster in clusters for region in regions]
    return (job, *(_moved(job, region, cluster) for region, cluster in pairs[1:]))


def _moved(job: Job, region: str | None, cluster: Cluster) -> Job:
    """Return a job elsewhere, without reservations and topologies of machines that it leaves."""
    body = deepcopy(dict(job.vertex))
    specs = fields.job_spec(body).get("workerPoolSpecs") or []
    for spec, own, other in zip(specs, job.cluster.pools, cluster.pools, strict=False):
        machine = (spec or {}).get("machineSpec") or {}
        machine.pop(reservation.AFFINITY, None)
        if own != other:
            machine.pop("tpuTopology", None)
    return replace(job, region=region, cluster=cluster, reservation=None, vertex=body)
