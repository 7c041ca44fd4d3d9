"""Jobs whose `stop_if` has no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlaunch.checks.problem import warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlaunch.checks.problem import Problem
    from distlaunch.job.model import Job


def problems(job: Job, *, is_bundled: bool) -> Iterator[Problem]:
    """Yield what keeps a job from being stopped; `is_bundled` is for the bundled trainer."""
    if job.stop_if is None:
        return
    cluster = job.cluster
    if not any(pool and pool.machine.task_gpus for pool in (cluster.chief, cluster.workers)):
        what = "has no effect: the chief and the workers have no GPUs whose use could be measured"
        yield warning("stop-if-no-gpus", "stop_if", what, "remove it, or add GPUs")
    servers = cluster.parameter_servers
    if not (is_bundled or job.is_script) or (is_bundled and servers and servers.count):
        program = "with parameter servers" if is_bundled else "in a program of your own"
        what = f"has no effect {program}: the trainer stops jobs whose workers train in step"
        remedy = "remove it, or run the bundled trainer or a fit script ('script:')"
        yield warning("stop-if-ignored", "stop_if", what, remedy)
