"""An AI Platform job → a Job, with a line for each thing that was changed or ignored.

The file is translated into Vertex AI's format, which is read as any file in that format.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distlaunch.job.ai_platform.fields import (
    CONFIG_FIELDS,
    JOB_FIELDS,
    SPEC_FIELDS,
    move_fields,
    to_study,
)
from distlaunch.job.ai_platform.machines import RoleConfig, current_machine, role_configs
from distlaunch.job.launch import JOB_DIR
from distlaunch.job.names import job_name
from distlaunch.job.tasks import POOL_ROLES
from distlaunch.job.vertex import to_job as vertex_to_job
from distlaunch.job.yaml_document import job_file_error

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.job.ai_platform import AiPlatformFile
    from distlaunch.job.model import Job

DEFAULT_METRIC = "training/hptuning/metric"

_CONTAINER_REGISTRY = re.compile(r"([a-z]+\.)?gcr\.io/")
_IGNORED = {
    "masterConfig.tpuTfVersion": "a TPU now runs the image's TensorFlow",
    "workerConfig.tpuTfVersion": "a TPU now runs the image's TensorFlow",
    "scheduling.priority": "Vertex AI has no priorities",
    "hyperparameters.resumePreviousJobId": "AI Platform's searches no longer exist",
}
_PROGRAM_FIELDS = ("containerCommand", "containerArgs")


def to_job(
    file: AiPlatformFile,
    base: Job,
    *,
    folder: Path,
    image: str | None = None,
    replace_retired: bool = False,
) -> tuple[Job, tuple[str, ...]]:
    """Translate a job of AI Platform Training, which ended in 2025, for Vertex AI.

    A field with one equivalent is translated, with a note if it is not the same. A field with
    several, which differ in price or in what runs, is an error that lists them.

    If `folder` has the module of a package job, the image is built from it; `image` is that of the
    command line. With `replace_retired`, retired accelerators are kept for the caller to replace.
    """
    given = file.training_input
    image = image or base.image.uri
    roles = role_configs(file)
    shared_image = given.get("masterConfig", {}).get("imageUri")
    args = given.get("args", () if shared_image else base.args)
    job_dir = (JOB_DIR, given["jobDir"]) if "jobDir" in given else ()
    package = None if shared_image else _package(file, folder, base, image)
    if package:
        package["args"] = [*args, *job_dir]
    pools: list[dict[str, Any]] = [{} for _ in POOL_ROLES]
    for role in roles:
        pool = _pool(role, file, package, [*job_dir], keep_retired=replace_retired)
        pools[POOL_ROLES.index(role.role)] = pool
    if job_dir:
        file.warn("jobDir", f"{given['jobDir']} is also passed as {JOB_DIR}, as before")
        if not given["jobDir"].startswith("gs://"):
            file.error("jobDir", f"expected gs://BUCKET/FOLDER, got {given['jobDir']!r}")
    _check_images(file, roles, pools)
    _warn_about_ended_features(file, roles, shared_image or image)
    if "hyperparameters" in given:
        _check_search(file, given["hyperparameters"])
    if file.errors:
        raise job_file_error(file.path, file.errors)
    body = _request(file, pools, base)
    base = replace(
        base,
        module=given.get("pythonModule", base.module),
        args=(*args, *job_dir),
        region=given.get("region", base.region),
    )
    return vertex_to_job.to_job(body, tuple(file.warnings), base)


def _request(file: AiPlatformFile, pools: list[dict[str, Any]], base: Job) -> dict[str, Any]:
    """Return the job in Vertex AI's format."""
    given = deepcopy(file.training_input)
    if base.scheduling.strategy != "FLEX_START" and "maxWaitTime" in given.get("scheduling", {}):
        del given["scheduling"]["maxWaitTime"]
        reason = "Vertex AI limits the wait only with scheduling.strategy FLEX_START"
        file.warn("scheduling.maxWaitTime", f"ignored, as {reason}")
    while not pools[-1]:
        pools.pop()
    body: dict[str, Any] = {}
    move_fields(file.job, body, {"labels": "labels"})
    if "jobId" in file.job:
        body["displayName"] = job_name(file.job["jobId"])
    spec_field = "jobSpec"
    if "hyperparameters" in given:
        spec_field = "trialJobSpec"
        search = given["hyperparameters"]
        body["studySpec"] = to_study(
            search, search.get("hyperparameterMetricTag") or DEFAULT_METRIC
        )
        body |= {"maxTrialCount": 1, "parallelTrialCount": 1}
    spec: dict[str, Any] = {"workerPoolSpecs": pools}
    move_fields(given, spec, SPEC_FIELDS)
    move_fields(given, body, JOB_FIELDS)
    return {**body, spec_field: spec}


def _pool(
    role: RoleConfig,
    file: AiPlatformFile,
    package: dict[str, Any] | None,
    job_dir: list[str],
    *,
    keep_retired: bool,
) -> dict[str, Any]:
    """Return the worker pool of a role, without a program if it runs the job's image."""
    machine = current_machine(role, file, keep_retired=keep_retired)
    if machine is None:
        return {}
    given = file.training_input
    config = deepcopy(dict(role.config))
    config.pop("acceleratorConfig", None)
    image = config.get("imageUri") or given.get("masterConfig", {}).get("imageUri")
    for name in _PROGRAM_FIELDS:
        if name in config and not image:
            file.error(f"{role.config_field}.{name}", "requires an imageUri, which is not set")
        elif name in config and "args" in given:
            file.error(f"{role.config_field}.{name}", "conflicts with args; leave one out")
    pool: dict[str, Any] = {"machineSpec": {"machineType": machine.type}}
    if machine.accelerator:
        pool["machineSpec"]["acceleratorType"] = machine.accelerator
        pool["machineSpec"]["acceleratorCount"] = machine.accelerator_count
    pool["replicaCount"] = role.count
    if image:
        config["imageUri"] = image
        config["containerArgs"] = [*config.get("containerArgs", given.get("args", ())), *job_dir]
    elif package:
        pool["pythonPackageSpec"] = {**package}
    move_fields(config, pool, CONFIG_FIELDS)
    return pool


def _check_images(
    file: AiPlatformFile, roles: list[RoleConfig], pools: list[dict[str, Any]]
) -> None:
    images = {pool.get("containerSpec", {}).get("imageUri", "") for pool in pools}
    for image in sorted(images):
        if _CONTAINER_REGISTRY.match(image):
            reason = "Container Registry has ended"
            exists = f"{image} exists only if it was copied to Artifact Registry"
            file.warn("imageUri", f"{exists}: {reason}")
    if roles and _defines_program(roles[0]):
        for role in roles[1:]:
            if "imageUri" not in role.config and not _defines_program(role):
                message = "runs the image's entrypoint: only masterConfig has a containerCommand"
                file.warn(role.config_field, f"{message} or containerArgs")
    given = file.training_input
    for name in ("packageUris", "pythonModule"):
        if given.get("masterConfig", {}).get("imageUri") and given.get(name):
            file.error(name, "conflicts with masterConfig.imageUri; leave one out")


def _defines_program(role: RoleConfig) -> bool:
    return not role.config.keys().isdisjoint(_PROGRAM_FIELDS)


def _warn_about_ended_features(
    file: AiPlatformFile, roles: list[RoleConfig], image: str | None
) -> None:
    """Warn about what is ignored, or different on Vertex AI."""
    given = file.training_input
    job_id = file.job.get("jobId")
    if job_id and job_name(job_id) != job_id:
        name = job_name(job_id)
        file.warn("jobId", f"{job_id} is now {name}, as a job's name is part of paths and labels")
    for name in ("runtimeVersion", "pythonVersion"):
        if name in given:
            source = image or "image.base and image.requirements in distlaunch.yaml"
            file.warn(
                name,
                f"{given[name]} is ignored, as Google's runtimes ended with AI Platform; Python "
                f"and TensorFlow are those of {source}",
            )
    if not given.get("useChiefInTfConfig") and sum(role.count for role in roles) > 1:
        file.warn("useChiefInTfConfig", "TF_CONFIG now has chief in place of master")
    for name, reason in _IGNORED.items():
        section, _, field = name.partition(".")
        if field in given.get(section, {}):
            file.warn(name, f"ignored, as {reason}")
    ignored = sorted(file.job.keys() - {"trainingInput", "jobId", "labels"})
    if ignored:
        file.warn(", ".join(ignored), "ignored (output-only fields)")


def _check_search(file: AiPlatformFile, search: dict[str, Any]) -> None:
    """Check ``hyperparameters``, and warn about what is different on Vertex AI."""
    names: set[str] = set()
    if not search.get("params"):
        file.error("hyperparameters.params", "expected one or more")
    for index, param in enumerate(search.get("params", ())):
        path = f"hyperparameters.params.{index}"
        name = param.get("parameterName")
        if not name:
            file.error(f"{path}.parameterName", "is missing")
        elif name in names:
            file.error(f"{path}.parameterName", f"duplicate name {name}")
        names.add(name)
        _check_values(file, param, path)
    metric = "hyperparameters.hyperparameterMetricTag"
    if not search.get("hyperparameterMetricTag"):
        file.warn(metric, f"not set; using {DEFAULT_METRIC}, AI Platform's default")
    file.warn(
        metric,
        "the program must report it by cloudml-hypertune (or to the file named by "
        "CLOUD_ML_HP_METRIC_FILE), as Vertex AI does not read TensorFlow's summaries",
    )
    if search.get("enableTrialEarlyStopping"):
        file.warn(
            "hyperparameters.enableTrialEarlyStopping",
            "is now studySpec.medianAutomatedStoppingSpec, as Vertex AI needs a named rule and AI "
            "Platform did not document its own; set another under vertex: in distlaunch.yaml",
        )


def _check_values(file: AiPlatformFile, param: dict[str, Any], path: str) -> None:
    """Check that a parameter has the values of its type."""
    kind = param.get("type")
    if kind in ("CATEGORICAL", "DISCRETE"):
        name = f"{kind.lower()}Values"
        if not param.get(name):
            file.error(f"{path}.{name}", "expected one or more values")
        return
    if kind not in ("DOUBLE", "INTEGER"):
        expected = "expected DOUBLE, INTEGER, CATEGORICAL or DISCRETE"
        file.error(f"{path}.type", expected if kind else f"is missing; {expected}")
        return
    for name in ("minValue", "maxValue"):
        end = param.get(name)
        if end is None:
            file.error(f"{path}.{name}", f"is missing, and type {kind} needs it")
        elif kind == "INTEGER" and end != int(end):
            file.error(f"{path}.{name}", f"expected a whole number for type INTEGER, got {end}")
    low, high = param.get("minValue"), param.get("maxValue")
    if low is not None and high is not None and low > high:
        file.error(f"{path}.maxValue", f"expected minValue, {low}, or more, got {high}")


def _package(
    file: AiPlatformFile, folder: Path, base: Job, image: str | None
) -> dict[str, Any] | None:
    """Return the package that Google installs, None for the image that is built from the folder."""
    given = file.training_input
    packages, module = given.get("packageUris"), given.get("pythonModule") or base.module
    if _has_module(folder, module):
        if packages:
            source = f"{image} is assumed to have it" if image else "the image is built from it"
            file.warn("packageUris", f"ignored; {module} is in the project folder, and {source}")
    elif packages and "pythonModule" not in given:
        message = "is missing, and packageUris needs it; write a module such as trainer.task"
        file.error("pythonModule", message)
    elif image is None and (packages or "pythonModule" in given):
        file.error(
            "packageUris" if packages else "pythonModule",
            f"{module} is not in {folder}, and the images that Google installed packages into no "
            "longer exist; submit from the folder with it, or pass an image that runs it with "
            "--image",
        )
    elif packages:
        file.warn("packageUris", f"Vertex AI installs them into {image} when the job starts")
        return {"executorImageUri": image, "packageUris": packages, "pythonModule": module}
    return None


def _has_module(folder: Path, module: str) -> bool:
    """Return whether ``python -m MODULE`` finds its module in a folder."""
    names = module.split(".")
    if not all(name.isidentifier() for name in names):  # a path, to anywhere
        return False
    path = folder.joinpath(*names)
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
