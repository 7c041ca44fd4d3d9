"""The machines and regions that a launch may try: each must be able to run the job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distlaunch.checks import limits, machines
from distlaunch.checks.problem import error, warning
from distlaunch.checks.project import gpus
from distlaunch.job.choices import job_choices
from distlaunch.job.vertex.view import job_request
from distlaunch.text import join_names

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.machine_catalogue import Catalogue
    from distlaunch.job.model import Job
    from distlaunch.job.vertex.view import JobRequest


def problems(
    launch: LaunchRequest,
    catalogue: Catalogue,
    runtime: ImageRuntime | None,
    today: dt.date,
    *,
    is_bundled: bool,
) -> Iterator[Problem]:
    """Yield the problems of each choice's machines, and those of the list."""
    choices = launch.choices
    requests = [job_request(choice) for choice in choices]
    for choice, request in zip(choices, requests, strict=True):
        found = (
            *machines.problems(request, catalogue, today),
            *limits.problems(request, catalogue, is_moved=choice.job.region != launch.job.region),
            *gpus.problems(launch, request, catalogue, runtime, today),
            *gpus.unequal(request, is_bundled=is_bundled),
        )
        yield from (replace(each, where=_key(launch, choice, each.where)) for each in found)
    yield from _moved_from_persistent_resource(*requests)
    yield from _left_out(launch, choices)
    yield from _without_pool(launch.job)


def _key(launch: LaunchRequest, choice: LaunchRequest, key: str) -> str:
    """Return the key of the job file that sets for a choice what a key sets for the job."""
    own, other = launch.job, choice.job
    if key == "region" and other.region != own.region:
        return "scheduling.regions"
    if key.startswith("cluster.") and other.cluster != own.cluster:
        clusters = [own.cluster.with_machines(each) for each in own.scheduling.machines]
        return f"scheduling.machines.{clusters.index(other.cluster)}"
    return key


def _moved_from_persistent_resource(first: JobRequest, *others: JobRequest) -> Iterator[Problem]:
    if first.persistent_resource and others:
        places = join_names([f"{each.machines} in {each.region}" for each in others], "or")
        what = f"{first.persistent_resource} has no {places}"
        remedy = "remove scheduling.regions and scheduling.machines"
        yield error("persistent-resource-moves", "persistent_resource", what, remedy)


def _without_pool(job: Job) -> Iterator[Problem]:
    """Yield the machines of pools that the cluster does not have."""
    for index, choice in enumerate(job.scheduling.machines):
        for field in choice.pools:
            if getattr(job.cluster, field) is None:
                key = f"scheduling.machines.{index}.{field}"
                what = f"the cluster has no {field.replace('_', ' ')}"
                yield warning("machines-left-out", key, what, f"remove it, or add cluster.{field}")


def _left_out(launch: LaunchRequest, choices: Sequence[LaunchRequest]) -> Iterator[Problem]:
    """Yield the machines that are not tried in a region, as it does not offer them."""
    tried = [choice.job for choice in choices]
    for job in job_choices(launch.job):
        if job not in tried:
            name = job_request(replace(launch, job=job)).machines
            what = f"{name} is not tried in {job.region}, which does not offer it for training"
            remedy = f"leave it so, or replace {job.region} in scheduling.regions"
            yield warning("machines-left-out", "scheduling.machines", what, remedy)
