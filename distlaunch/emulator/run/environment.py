"""The variables, paths and command of a replica, on any backend."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from distlaunch.emulator.buckets import local_path
from distlaunch.emulator.run.backend import CannotRun
from distlaunch.job.tf_config import replica_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from distlaunch.emulator.run.job_spec import Replica, Workload
    from distlaunch.job.model import Task


def variables(
    workload: Workload,
    replica: Replica,
    addresses: Mapping[Task, str],
    *,
    job_dir: str | None,
    metric_file: str,
) -> dict[str, str]:
    """Return the variables that Vertex AI and the job set; paths are those for the replica."""
    env = replica_environment(addresses, replica.task, job_id=workload.job_id, job_dir=job_dir)
    env["CLOUD_ML_PROJECT_ID"] = workload.project_number
    if workload.trial is not None:
        for name in {"CLUSTER_SPEC", "TF_CONFIG"} & env.keys():
            spec = json.loads(env[name])
            spec["task"]["trial"] = workload.trial
            env[name] = json.dumps(spec)
        env |= {"CLOUD_ML_TRIAL_ID": workload.trial, "CLOUD_ML_HP_METRIC_FILE": metric_file}
    return {**env, **replica.env}


def storage_path(storage: Path, uri: str) -> Path:
    """Return the path of a ``gs://`` URI in the folder of the buckets, or raise `CannotRun`."""
    try:
        return local_path(storage, uri)
    except ValueError as problem:
        raise CannotRun(f"{uri}: {problem}") from None


def package_command(module: str, files: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return the command that installs Python packages into a folder and runs a module of them."""
    target = shlex.quote(folder)
    pip = "python3 -m pip install --quiet --disable-pip-version-check"
    install = f"{pip} --target {target} {shlex.join(files)}"
    run = f'PYTHONPATH={target}:"$PYTHONPATH" exec python3 -m {shlex.quote(module)} "$@"'
    return ("sh", "-c", f"{install} && {run}", "sh")
