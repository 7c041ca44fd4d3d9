"""An AI Platform job → a Job, with a line for each thing that was changed or ignored."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distlaunch.job.ai_platform.cluster import RoleConfig, role_configs, to_cluster
from distlaunch.job.ai_platform.models import OUTPUT_ONLY_FIELDS, to_camel_case
from distlaunch.job.ai_platform.programs import to_programs
from distlaunch.job.ai_platform.report import TranslationReport
from distlaunch.job.ai_platform.tuning import other_fields, to_tuning
from distlaunch.job.merge import deep_merge
from distlaunch.job.model import POOL_ROLES
from distlaunch.job.names import job_name

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.job.ai_platform import AiPlatformFile
    from distlaunch.job.ai_platform.models import TrainingInput
    from distlaunch.job.model import Job, Scheduling


def to_job(
    file: AiPlatformFile,
    *,
    folder: Path,
    base: Job,
    image: str | None = None,
    replace_retired: bool = False,
) -> tuple[Job, tuple[str, ...]]:
    """Translate a job of AI Platform Training, which ended in 2025, for Vertex AI.

    A field with one equivalent is translated, with a note if it is not the same. A field with
    several, which differ in price or in what runs, is an error that lists them.

    Parameters
    ----------
    folder
        The project folder; if it has the module of a package job, the image is built from it.
    base
        The job of distlaunch.yaml, whose cluster is not used; the file wins over the rest.
    image
        An image from the command line, for the pools without one.
    replace_retired
        Whether retired accelerators are kept for the caller to replace, instead of being errors.

    Raises
    ------
    JobFileError
        With every field that has no equivalent, each with line, column and the choices.
    """
    given, report = file.training_input, TranslationReport(file)
    name = _name(file, base, report)
    roles = role_configs(given, report)
    programs = to_programs(
        given, roles, report, folder=folder, base=base, image=image or base.image.uri
    )
    cluster = to_cluster(roles, programs.by_role, report, keep_retired=replace_retired)
    tuning = to_tuning(given.hyperparameters, report) if given.hyperparameters else None
    job = replace(
        base,
        name=name,
        module=programs.module,
        args=programs.args,
        region=given.region or base.region,
        labels={**base.labels, **(file.job.labels or {})},
        service_account=given.service_account or base.service_account,
        network=given.network or base.network,
        scheduling=_scheduling(given, base.scheduling, report),
        tuning=tuning or base.tuning,
    )
    job = replace(job, vertex=_other_vertex_fields(job, base, given, roles, report))
    _warn_about_ended_features(file, roles, programs.runtime, report)
    report.raise_errors()
    return replace(job, cluster=cluster or job.cluster), tuple(report.warnings)


def _name(file: AiPlatformFile, base: Job, report: TranslationReport) -> str:
    job_id = file.job.job_id
    if not job_id:
        return base.name
    name = job_name(job_id)
    if name != job_id:
        report.warn("jobId", f"{job_id} is now {name}, as a job's name is part of paths and labels")
    return name


def _scheduling(given: TrainingInput, base: Scheduling, report: TranslationReport) -> Scheduling:
    scheduling = given.scheduling
    if scheduling is None:
        return base
    if scheduling.priority is not None:
        report.warn("scheduling.priority", "ignored, as Vertex AI has no priorities")
    changes: dict[str, Any] = {}
    if scheduling.max_running_time:
        changes["timeout"] = _seconds(scheduling.max_running_time, "maxRunningTime", report)
    if scheduling.max_wait_time and base.strategy == "FLEX_START":
        changes["max_wait"] = _seconds(scheduling.max_wait_time, "maxWaitTime", report)
    elif scheduling.max_wait_time:
        report.warn(
            "scheduling.maxWaitTime",
            "ignored, as Vertex AI limits the wait only with scheduling.strategy FLEX_START",
        )
    return replace(base, **changes)


def _seconds(duration: str, name: str, report: TranslationReport) -> int:
    seconds = float(duration.removesuffix("s"))
    rounded = math.ceil(seconds)
    if rounded != seconds:
        report.warn(f"scheduling.{name}", f"{duration} is now {rounded}s (whole seconds only)")
    return rounded


def _other_vertex_fields(
    job: Job, base: Job, given: TrainingInput, roles: list[RoleConfig], report: TranslationReport
) -> dict[str, Any]:
    """Return the fields of Google's job that a Job does not have."""
    spec_key = "trialJobSpec" if job.tuning else "jobSpec"
    below = dict(base.vertex)
    base_spec = {**below.pop("jobSpec", {}), **below.pop("trialJobSpec", {})}
    base_spec.pop("workerPoolSpecs", None)
    spec: dict[str, Any] = {}
    if any(each.config.disk_config for each in roles):
        spec["workerPoolSpecs"] = _disk_specs(roles)
    if given.enable_web_access is not None:
        spec["enableWebAccess"] = given.enable_web_access
    if given.job_dir:
        spec["baseOutputDirectory"] = {"outputUriPrefix": given.job_dir}
        if not given.job_dir.startswith("gs://"):
            report.error("jobDir", f"expected gs://BUCKET/FOLDER, got {given.job_dir!r}")
    fields = {spec_key: spec} if spec else {}
    if given.encryption_config and given.encryption_config.kms_key_name:
        fields["encryptionSpec"] = {"kmsKeyName": given.encryption_config.kms_key_name}
    if given.hyperparameters:
        fields |= other_fields(given.hyperparameters)
    return deep_merge(below | ({spec_key: base_spec} if base_spec else {}), fields)


def _disk_specs(roles: list[RoleConfig]) -> list[dict[str, Any]]:
    disks = {
        POOL_ROLES.index(each.role): each.config.disk_config
        for each in roles
        if each.config.disk_config
    }
    specs: list[dict[str, Any]] = [{} for _ in range(max(disks) + 1)]
    for index, disk in disks.items():
        specs[index] = {"diskSpec": disk.model_dump(by_alias=True, exclude_none=True)}
    return specs


def _warn_about_ended_features(
    file: AiPlatformFile, roles: list[RoleConfig], runtime: str, report: TranslationReport
) -> None:
    """Warn about what has no equivalent in any job."""
    given = file.training_input
    versions = {"runtimeVersion": given.runtime_version, "pythonVersion": given.python_version}
    for name, version in versions.items():
        if version is not None:
            reason = f"Google's runtimes ended with AI Platform; {runtime}"
            report.warn(name, f"{version} is ignored, as {reason}")
    if any(each.config.tpu_tf_version for each in roles):
        report.warn("tpuTfVersion", "ignored: a TPU now runs the image's TensorFlow")
    if not given.use_chief_in_tf_config and sum(each.count for each in roles) > 1:
        report.warn("useChiefInTfConfig", "TF_CONFIG now has chief in place of master")
    ignored = sorted(OUTPUT_ONLY_FIELDS & set(map(to_camel_case, file.document.data)))
    if ignored:
        report.warn(", ".join(ignored), "ignored (output-only fields)")
