"""imageUri, packageUris, pythonModule, args and their kin → what runs on each role's machines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic.alias_generators import to_camel

from distlaunch.job.ai_platform.models import ReplicaConfig
from distlaunch.job.model import Program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.ai_platform.cluster import Replicas
    from distlaunch.job.ai_platform.models import TrainingInput
    from distlaunch.job.ai_platform.report import Ledger
    from distlaunch.job.model import Job


_OLD_REGISTRY = re.compile(r"([a-z]+\.)?gcr\.io/")


@dataclass(frozen=True, slots=True)
class Programs:
    """What a job runs.

    Parameters
    ----------
    module, args
        What the job's own image runs.
    by_role
        What runs on each role's machines, None for the job's own image.
    runtime
        Where Python and TensorFlow come from, as a person says it.
    """

    module: str
    args: tuple[str, ...]
    by_role: Mapping[str, Program | None]
    runtime: str


def programs(
    given: TrainingInput,
    wanted: list[Replicas],
    ledger: Ledger,
    *,
    folder: Path,
    base: Job,
    image: str | None,
) -> Programs:
    """Return what runs where.

    Parameters
    ----------
    given
        What the file says.
    wanted
        The roles of the job, with what is said of each.
    folder
        The project's folder, which the image is built from where the module lies in it.
    base
        What distlaunch.yaml says.
    image
        The image of the command line, which Python packages can be installed into.
    """
    shared = (given.master_config or ReplicaConfig()).image_uri
    job_dir = ("--job-dir", given.job_dir) if given.job_dir else ()
    own = _own(given, ledger, folder=folder, base=base, image=image) if not shared else None
    containers = {
        each.role: _container(given, each, each.config.image_uri or shared, job_dir, ledger)
        for each in wanted
    }
    if job_dir:
        ledger.note("jobDir", f"{given.job_dir} is also handed over as --job-dir, as before")
    _note_old_registry(containers, ledger)
    _note_own_programs(wanted, ledger)
    if shared and (given.package_uris or given.python_module):
        _refuse_packages_beside_an_image(given, ledger)
    said = base.args if given.args is None and not shared else given.args
    args = (*(said or ()), *job_dir)
    if own:
        own = Program(own.image, args=args, module=own.module, packages=own.packages)
    return Programs(
        module=given.python_module or base.module,
        args=args,
        by_role={role: found or own for role, found in containers.items()},
        runtime=f"Python and TensorFlow are those of {_runtime(shared or image)}",
    )


def _runtime(image: str | None) -> str:
    return image or "image.base and image.requirements in distlaunch.yaml"


def _container(
    given: TrainingInput,
    wanted: Replicas,
    image: str | None,
    job_dir: tuple[str, ...],
    ledger: Ledger,
) -> Program | None:
    config, where = wanted.config, f"{to_camel(wanted.role)}Config"
    for name, value in (
        ("containerCommand", config.container_command),
        ("containerArgs", config.container_args),
    ):
        if value is not None and image is None:
            ledger.refuse(f"{where}.{name}", "goes with an imageUri, and there is none")
        elif value is not None and given.args is not None:
            ledger.refuse(f"{where}.{name}", "goes without args, and there are both")
    if image is None:
        return None
    args = given.args if config.container_args is None else config.container_args
    return Program(
        image=image,
        command=config.container_command or (),
        args=(*(args or ()), *job_dir),
    )


def _note_old_registry(containers: Mapping[str, Program | None], ledger: Ledger) -> None:
    for image in sorted({found.image for found in containers.values() if found and found.image}):
        if _OLD_REGISTRY.match(image):
            what = (
                "is there only if it was copied to Artifact Registry, as Container Registry ended"
            )
            ledger.note("imageUri", f"{image} {what}")


def _note_own_programs(wanted: list[Replicas], ledger: Ledger) -> None:
    """Tell of pools that take the master's image over, but not what it runs there."""
    if not wanted or not _says_what_to_run(wanted[0].config):
        return
    for each in wanted[1:]:
        if not each.config.image_uri and not _says_what_to_run(each.config):
            what = "the image runs what it says itself, as only masterConfig has a containerCommand"
            ledger.note(each.said_in, f"{what} or containerArgs")


def _says_what_to_run(config: ReplicaConfig) -> bool:
    return config.container_command is not None or config.container_args is not None


def _refuse_packages_beside_an_image(given: TrainingInput, ledger: Ledger) -> None:
    for name, value in (
        ("packageUris", given.package_uris),
        ("pythonModule", given.python_module),
    ):
        if value:
            what = "goes without masterConfig.imageUri; leave one out, as the image runs its own"
            ledger.refuse(name, what)


def _own(
    given: TrainingInput, ledger: Ledger, *, folder: Path, base: Job, image: str | None
) -> Program | None:
    """Return Google's package program, or None for the image that is built from the folder."""
    module = given.python_module or base.module
    if lies_in(folder, module):
        if given.package_uris:
            whose = f"{image} is taken to hold it" if image else "the image is built from there"
            ledger.note(
                "packageUris", f"dropped; {module} lies in the project's folder, and {whose}"
            )
        return None
    if given.package_uris:
        return _package(given, ledger, module, image)
    if given.python_module and image is None:
        ledger.refuse(
            "pythonModule",
            f"{module} is not in {folder}; submit from the folder it lies in, or name an image "
            "that runs it with --image",
        )
    return None


def _package(
    given: TrainingInput, ledger: Ledger, module: str, image: str | None
) -> Program | None:
    if not given.python_module:
        what = "is missing, and packageUris needs it; write one, as trainer.task"
        ledger.refuse("pythonModule", what)
        return None
    if image is None:
        ledger.refuse(
            "packageUris",
            f"{module} is not in the project's folder, and the images that Google installed "
            "packages into are gone; name one with --image, or submit from the module's folder",
        )
        return None
    ledger.note("packageUris", f"Vertex AI installs them into {image} when the job starts")
    return Program(image, module=module, packages=given.package_uris or ())


def lies_in(folder: Path, module: str) -> bool:
    """Return whether ``python -m MODULE`` finds its module in a folder."""
    names = module.split(".")
    if not all(name.isidentifier() for name in names):  # a path, which may lead anywhere
        return False
    path = folder.joinpath(*names)
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
