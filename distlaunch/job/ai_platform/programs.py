"""imageUri, packageUris, pythonModule, args, … → the program of each role."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.job.ai_platform.models import ReplicaConfig
from distlaunch.job.model import Program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.ai_platform.cluster import RoleConfig
    from distlaunch.job.ai_platform.models import TrainingInput
    from distlaunch.job.ai_platform.report import TranslationReport
    from distlaunch.job.model import Job, PoolRole

_CONTAINER_REGISTRY = re.compile(r"([a-z]+\.)?gcr\.io/")


@dataclass(frozen=True, slots=True)
class JobPrograms:
    """The job's module and args, the program of each role (None for the job's), and the runtime.

    The runtime is where Python and TensorFlow come from, in words.
    """

    module: str
    args: tuple[str, ...]
    by_role: Mapping[PoolRole, Program | None]
    runtime: str


def to_programs(
    given: TrainingInput,
    roles: list[RoleConfig],
    report: TranslationReport,
    *,
    folder: Path,
    base: Job,
    image: str | None,
) -> JobPrograms:
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
    return JobPrograms(
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
    if has_module(folder, module):
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


def has_module(folder: Path, module: str) -> bool:
    """Return whether ``python -m MODULE`` finds its module in a folder."""
    names = module.split(".")
    if not all(name.isidentifier() for name in names):  # a path, to anywhere
        return False
    path = folder.joinpath(*names)
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
