"""An AI Platform job → a Job, with a line for each thing that was changed or ignored."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from distlaunch.job.ai_platform.machines import RoleConfig, role_configs, to_cluster
from distlaunch.job.ai_platform.models import OUTPUT_ONLY_FIELDS, ReplicaConfig, to_camel_case
from distlaunch.job.ai_platform.report import TranslationReport
from distlaunch.job.ai_platform.tuning import other_fields, to_tuning
from distlaunch.job.merge import deep_merge
from distlaunch.job.model import POOL_ROLES, Program
from distlaunch.job.names import job_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.ai_platform import AiPlatformFile
    from distlaunch.job.ai_platform.models import TrainingInput
    from distlaunch.job.model import Job, PoolRole, Scheduling

_CONTAINER_REGISTRY = re.compile(r"([a-z]+\.)?gcr\.io/")


@dataclass(frozen=True, slots=True)
class _JobPrograms:
    """The job's module and args, the program of each role (None for the job's), and the runtime.

    The runtime is where Python and TensorFlow come from, in words.
    """

    module: str
    args: tuple[str, ...]
    by_role: Mapping[PoolRole, Program | None]
    runtime: str


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

    If `folder` has the module of a package job, the image is built from it; `image` is from the
    command line, for the pools without one. With `replace_retired`, retired accelerators are kept
    for the caller to replace, instead of being errors.
    """
    given, report = file.training_input, TranslationReport(file)
    name = _name(file, base, report)
    roles = role_configs(given, report)
    programs = _to_programs(
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


def _to_programs(
    given: TrainingInput,
    roles: list[RoleConfig],
    report: TranslationReport,
    *,
    folder: Path,
    base: Job,
    image: str | None,
) -> _JobPrograms:
    """Return the programs of a job; `image` is that of the command line, for Python packages."""
    shared = (given.master_config or ReplicaConfig()).image_uri
    job_dir = ("--job-dir", given.job_dir) if given.job_dir else ()
    package = None
    if not shared:
        package = _package_program(given, report, folder=folder, base=base, image=image)
    containers = {
        each.role: _container(given, each, each.config.image_uri or shared, job_dir, report)
        for each in roles
    }
    if job_dir:
        report.warn("jobDir", f"{given.job_dir} is also passed as --job-dir, as before")
    _check_images(given, roles, shared, containers, report)
    file_args = base.args if given.args is None and not shared else given.args
    args = (*(file_args or ()), *job_dir)
    package = package and replace(package, args=args)
    runtime = shared or image or "image.base and image.requirements in distlaunch.yaml"
    return _JobPrograms(
        module=given.python_module or base.module,
        args=args,
        by_role={role: program or package for role, program in containers.items()},
        runtime=f"Python and TensorFlow are those of {runtime}",
    )


def _container(
    given: TrainingInput,
    role: RoleConfig,
    image: str | None,
    job_dir: tuple[str, ...],
    report: TranslationReport,
) -> Program | None:
    config = role.config
    for name, value in (
        ("containerCommand", config.container_command),
        ("containerArgs", config.container_args),
    ):
        if value is not None and image is None:
            report.error(f"{role.config_field}.{name}", "requires an imageUri, which is not set")
        elif value is not None and given.args is not None:
            report.error(f"{role.config_field}.{name}", "conflicts with args; leave one out")
    if image is None:
        return None
    args = given.args if config.container_args is None else config.container_args
    return Program(image, command=config.container_command or (), args=(*(args or ()), *job_dir))


def _check_images(
    given: TrainingInput,
    roles: list[RoleConfig],
    shared: str | None,
    containers: Mapping[PoolRole, Program | None],
    report: TranslationReport,
) -> None:
    images = {each.image for each in containers.values() if each and each.image}
    for image in sorted(images):
        if _CONTAINER_REGISTRY.match(image):
            reason = "Container Registry has ended"
            exists = f"{image} exists only if it was copied to Artifact Registry"
            report.warn("imageUri", f"{exists}: {reason}")
    if roles and _defines_program(roles[0].config):
        for role in roles[1:]:
            if not role.config.image_uri and not _defines_program(role.config):
                message = "runs the image's entrypoint: only masterConfig has a containerCommand"
                report.warn(role.config_field, f"{message} or containerArgs")
    packages = {"packageUris": given.package_uris, "pythonModule": given.python_module}
    for name, value in packages.items():
        if shared and value:
            report.error(name, "conflicts with masterConfig.imageUri; leave one out")


def _defines_program(config: ReplicaConfig) -> bool:
    return config.container_command is not None or config.container_args is not None


def _package_program(
    given: TrainingInput,
    report: TranslationReport,
    *,
    folder: Path,
    base: Job,
    image: str | None,
) -> Program | None:
    """Return a program that Google installs, None for the image that is built from the folder."""
    module = given.python_module or base.module
    if _has_module(folder, module):
        if given.package_uris:
            source = f"{image} is assumed to have it" if image else "the image is built from it"
            report.warn("packageUris", f"ignored; {module} is in the project folder, and {source}")
        return None
    if not given.package_uris:
        if given.python_module and image is None:
            report.error(
                "pythonModule",
                f"{module} is not in {folder}; submit from the folder with it, or pass an image "
                "that runs it with --image",
            )
        return None
    if not given.python_module:
        message = "is missing, and packageUris needs it; write a module such as trainer.task"
        report.error("pythonModule", message)
        return None
    if image is None:
        report.error(
            "packageUris",
            f"{module} is not in the project folder, and the images that Google installed packages "
            "into no longer exist; pass one with --image, or submit from the folder with the "
            "module",
        )
        return None
    report.warn("packageUris", f"Vertex AI installs them into {image} when the job starts")
    return Program(image, module=module, packages=given.package_uris)


def _has_module(folder: Path, module: str) -> bool:
    """Return whether ``python -m MODULE`` finds its module in a folder."""
    names = module.split(".")
    if not all(name.isidentifier() for name in names):  # a path, to anywhere
        return False
    path = folder.joinpath(*names)
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
