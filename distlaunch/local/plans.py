"""What is to run and in what surroundings → what the host starts for a task."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.local import container
from distlaunch.local.run_spec import Container, Module
from distlaunch.local.task_process import TaskPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.model import Task
    from distlaunch.local.host_resources import Share
    from distlaunch.local.run_spec import LocalOrder

# Where Google's libraries look for credentials, of which the first is a variable, too.
_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_USUAL_CREDENTIALS = Path(".config", "gcloud", "application_default_credentials.json")


def plan_task(
    order: LocalOrder, task: Task, share: Share, env: Mapping[str, str], attempt: Path
) -> TaskPlan:
    """Return what the host starts for a task.

    Parameters
    ----------
    share
        The task's part of this machine.
    env
        The environment of its program.
    attempt
        The folder for the output of this attempt.
    """
    program = order.program
    if isinstance(program, Container):
        name = f"distlaunch-{order.job_id}-{os.getpid()}-{attempt.name}-{task}".replace(":", "-")
        spec = _spec(order, program, share, env, name)
        argv, cores = container.argv(container.RUN), None
        env = {**os.environ, **spec.to_environment()}
    else:
        name, cores = None, share.cores
        argv = [program.name, *program.args] if isinstance(program, Module) else [*program.argv]
    return TaskPlan(
        name=str(task),
        argv=argv,
        is_module=isinstance(program, Module),
        env=env,
        work_dir=str(order.work_dir),
        cores=cores,
        container=name,
    )


def _spec(
    order: LocalOrder, program: Container, share: Share, env: Mapping[str, str], name: str
) -> container.Spec:
    credentials = _credentials()
    return container.Spec(
        name=name,
        image=program.image,
        args=program.args,
        environment={**env, **({_CREDENTIALS: credentials} if credentials else {})},
        folders=_folders(order),
        files=[credentials] if credentials else [],
        cores=share.cores,
        gpus=bool(share.gpus),
    )


def _folders(order: LocalOrder) -> list[str]:
    """Return what a task writes to on this machine."""
    own = [order.job_dir] if Path(order.job_dir).is_absolute() else []
    return [*own, str(order.logs_dir)]


def _credentials() -> str | None:
    """Return the file with the credentials that Google's libraries find here, if there is one."""
    path = Path(os.environ.get(_CREDENTIALS) or Path.home() / _USUAL_CREDENTIALS)
    return str(path.absolute()) if path.is_file() else None
