"""An AI Platform job → a job of today, with a note for each thing that was changed or dropped."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from distlaunch.job.ai_platform.cluster import ROLES, Replicas, cluster, replicas
from distlaunch.job.ai_platform.models import TOLD_BY_THE_SERVICE
from distlaunch.job.ai_platform.programs import Programs, programs
from distlaunch.job.ai_platform.report import Ledger
from distlaunch.job.ai_platform.tuning import other_fields, to_tuning
from distlaunch.job.model import Cluster, Job, Machine, Pool, Scheduling
from distlaunch.job.names import job_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.ai_platform import AiPlatformFile
    from distlaunch.job.ai_platform.models import TrainingInput


@dataclass(frozen=True, slots=True)
class Translation:
    """A job, and what was changed or dropped on the way to it.

    Parameters
    ----------
    notes
        One line each, as ``masterType: standard_v100 is n1-standard-8 with 1 NVIDIA_TESLA_V100``.
    """

    job: Job
    notes: tuple[str, ...]


def to_job(
    file: AiPlatformFile,
    *,
    folder: Path,
    name: str | None = None,
    base: Job | None = None,
    image: str | None = None,
) -> Translation:
    """Translate a job of AI Platform Training, which ended in 2025, for Vertex AI.

    What has one equivalent is translated, and a note tells of it where it is not the very same.
    What leaves a choice that costs money or changes what runs is refused with the choices.

    Parameters
    ----------
    file
        The job.
    folder
        The project's folder; a package job whose module lies there gets its image built from it.
    name
        What the job is called; by default the file's jobId, the base's name or the folder's.
    base
        What distlaunch.yaml says; the file's words win. Its cluster is not looked at.
    image
        An image given on the command line, for the pools that have none of their own.

    Raises
    ------
    JobFileError
        With every thing that has no faithful equivalent, each with line, column and the choices.
    """
    given, ledger = file.training_input, Ledger(file)
    called = name or _name(file, base, folder, ledger)
    base = base or Job(called, Cluster(Pool(Machine(""))))
    wanted = replicas(given, ledger)
    run = programs(given, wanted, ledger, folder=folder, base=base, image=image or base.image.uri)
    found = cluster(wanted, run.by_role, ledger)
    tuning = to_tuning(given.hyperparameters, ledger) if given.hyperparameters else None
    job = replace(
        base,
        name=called,
        module=run.module,
        args=run.args,
        region=given.region or base.region,
        labels={**base.labels, **(file.job.labels or {})},
        service_account=given.service_account or base.service_account,
        network=given.network or base.network,
        scheduling=_scheduling(given, base.scheduling, ledger),
        tuning=tuning or base.tuning,
    )
    job = replace(job, vertex=_bag(job, base, given, wanted, ledger))
    _note_what_ended(file, wanted, run, ledger)
    ledger.settle()
    return Translation(replace(job, cluster=found or job.cluster), tuple(ledger.notes))


def _name(file: AiPlatformFile, base: Job | None, folder: Path, ledger: Ledger) -> str:
    job_id = file.job.job_id
    if not job_id:
        return base.name if base else job_name(folder.resolve().name)
    name = job_name(job_id)
    if name != job_id:
        ledger.note("jobId", f"{job_id} is {name}, as a job's name is a part of paths and labels")
    return name


def _scheduling(given: TrainingInput, base: Scheduling, ledger: Ledger) -> Scheduling:
    asked = given.scheduling
    if asked is None:
        return base
    if asked.priority is not None:
        ledger.note("scheduling.priority", "dropped, as Vertex AI has no priorities")
    changes: dict[str, Any] = {}
    if asked.max_running_time:
        changes["timeout"] = _seconds(asked.max_running_time, "maxRunningTime", ledger)
    if asked.max_wait_time and base.strategy == "FLEX_START":
        changes["max_wait"] = _seconds(asked.max_wait_time, "maxWaitTime", ledger)
    elif asked.max_wait_time:
        ledger.note(
            "scheduling.maxWaitTime",
            "dropped, as Vertex AI ends a wait only with scheduling.strategy FLEX_START",
        )
    return replace(base, **changes)


def _seconds(duration: str, name: str, ledger: Ledger) -> int:
    seconds = float(duration.removesuffix("s"))
    whole = math.ceil(seconds)
    if whole != seconds:
        ledger.note(f"scheduling.{name}", f"{duration} is {whole}s, rounded up to whole seconds")
    return whole


def _bag(
    job: Job, base: Job, given: TrainingInput, wanted: list[Replicas], ledger: Ledger
) -> dict[str, Any]:
    """Return the fields of Google's job that a Job has none for."""
    spec: dict[str, Any] = {}
    if any(each.config.disk_config for each in wanted):
        spec["workerPoolSpecs"] = _disks(wanted)
    if given.enable_web_access is not None:
        spec["enableWebAccess"] = given.enable_web_access
    if given.job_dir:
        spec["baseOutputDirectory"] = {"outputUriPrefix": given.job_dir}
        if not given.job_dir.startswith("gs://"):
            ledger.refuse("jobDir", f"expected gs://BUCKET/FOLDER, got {given.job_dir!r}")
    bag: dict[str, Any] = {"trialJobSpec" if job.tuning else "jobSpec": spec} if spec else {}
    if given.encryption_config and given.encryption_config.kms_key_name:
        bag["encryptionSpec"] = {"kmsKeyName": given.encryption_config.kms_key_name}
    if given.hyperparameters:
        bag |= other_fields(given.hyperparameters)
    return _over(bag, _without_cluster(base, is_tuned=job.tuning is not None))


def _disks(wanted: list[Replicas]) -> list[dict[str, Any]]:
    by_pool = {
        ROLES.index(each.role): each.config.disk_config.model_dump(by_alias=True, exclude_none=True)
        for each in wanted
        if each.config.disk_config
    }
    disks = [by_pool.get(index) for index in range(max(by_pool) + 1)]
    return [{"diskSpec": disk} if disk else {} for disk in disks]


def _without_cluster(base: Job, *, is_tuned: bool) -> dict[str, Any]:
    """Return what the base says of Google's job, but for the machines, which are the file's."""
    bag = dict(base.vertex)
    spec = {**bag.pop("jobSpec", {}), **bag.pop("trialJobSpec", {})}
    spec.pop("workerPoolSpecs", None)
    return bag | ({"trialJobSpec" if is_tuned else "jobSpec": spec} if spec else {})


def _over(above: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one mapping over another, mappings in it too."""
    both = {**below, **above}
    for key in above.keys() & below.keys():
        if isinstance(above[key], dict) and isinstance(below[key], dict):
            both[key] = _over(above[key], below[key])
    return both


def _note_what_ended(
    file: AiPlatformFile, wanted: list[Replicas], run: Programs, ledger: Ledger
) -> None:
    """Tell of what has no equivalent, whatever else the job says."""
    given = file.training_input
    for name, value in (
        ("runtimeVersion", given.runtime_version),
        ("pythonVersion", given.python_version),
    ):
        if value is not None:
            what = f"{value} is dropped, as Google's runtimes ended with AI Platform; {run.runtime}"
            ledger.note(name, what)
    if any(each.config.tpu_tf_version for each in wanted):
        ledger.note("tpuTfVersion", "dropped, as a TPU of today runs the image's own TensorFlow")
    if not given.use_chief_in_tf_config and sum(each.count for each in wanted) > 1:
        ledger.note("useChiefInTfConfig", "TF_CONFIG says chief where it said master before")
    told = [key for key in file.dump() if key in TOLD_BY_THE_SERVICE]
    if told:
        ledger.notes.append(
            f"{', '.join(told)}: dropped, as the service told it of a job that is over"
        )
