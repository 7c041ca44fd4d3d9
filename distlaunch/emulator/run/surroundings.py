"""What a replica finds in its environment, wherever it runs."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from distlaunch.job.tf_config import replica_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.emulator.run.running import Work
    from distlaunch.job.model import Task


def environment(
    work: Work,
    task: Task,
    addresses: Mapping[Task, str],
    *,
    job_dir: str | None,
    metric_file: str,
) -> dict[str, str]:
    """Return what Vertex AI sets.

    Parameters
    ----------
    addresses
        ``host:port`` of every replica.
    job_dir
        The job folder as the replica reaches it.
    metric_file
        Where a trial's program tells its metrics.
    """
    told = replica_environment(addresses, task, job_id=work.job_id, job_dir=job_dir)
    told["CLOUD_ML_PROJECT_ID"] = work.project_number
    if work.trial is None:
        return told
    for name in {"CLUSTER_SPEC", "TF_CONFIG"} & told.keys():
        spec = json.loads(told[name])
        spec["task"]["trial"] = work.trial
        told[name] = json.dumps(spec)
    return told | {"CLOUD_ML_TRIAL_ID": work.trial, "CLOUD_ML_HP_METRIC_FILE": metric_file}


def package_command(module: str, files: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return the command that installs Python packages and runs a module of theirs.

    Parameters
    ----------
    files
        The packages, as the replica reaches them.
    folder
        Where to install them to, for the replica itself.
    """
    place = shlex.quote(folder)
    pip = "python3 -m pip install --quiet --disable-pip-version-check"
    install = f"{pip} --target {place} {shlex.join(files)}"
    run = f'PYTHONPATH={place}:"$PYTHONPATH" exec python3 -m {shlex.quote(module)} "$@"'
    return ("sh", "-c", f"{install} && {run}", "sh")
