"""A Job and templates → the Dockerfile and the ignore file of its image."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch import resources
from distlaunch.errors import ImageError, did_you_mean
from distlaunch.image import secrets, trainer_wheel
from distlaunch.image.context import ContextFile, paths
from distlaunch.image.ignore_matcher import pattern_for
from distlaunch.image.requirements import (
    Requirements,
    read_requirements,
    read_text,
    sed_script,
)
from distlaunch.job import machine_catalogue
from distlaunch.job.model import DEFAULT_BASE, DEFAULT_REQUIREMENTS, Job
from distlaunch.template import has_template, is_rendered, render_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


CODE = "/app"  # the folder of the project's files in the image
REQUIREMENTS = "/environment"  # that of the requirements files

# Values are as ENV takes them: with variables of the base image.
_ENV = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONHASHSEED": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}
# TensorFlow opens the CUDA libraries by name, and the RUNPATH of its libtensorflow_framework.so.2
# does not name all of their folders (2.21: not cusolver, curand, nvjitlink, nvrtc). LD_LIBRARY_PATH
# cannot name them either: they depend on the image's Python, and a Dockerfile cannot compute a
# variable. So it names one folder with symlinks to all libraries. That is not in /usr/local/nvidia,
# over which Google's training services mount the driver.
CUDA_FOLDER = "/usr/local/lib/nvidia-wheels"
_CUDA_ENV = {
    "LD_LIBRARY_PATH": f"{CUDA_FOLDER}:/usr/local/nvidia/lib64:/usr/local/nvidia/lib"
    "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}",
    "PATH": "/usr/local/nvidia/bin:$PATH",
    "NVIDIA_VISIBLE_DEVICES": "${NVIDIA_VISIBLE_DEVICES:-all}",
    "NVIDIA_DRIVER_CAPABILITIES": "${NVIDIA_DRIVER_CAPABILITIES:-compute,utility}",
}
# Of two libraries of the same name the one that is first on Python's path is used.
LINK_CUDA = rf"""mkdir -p {CUDA_FOLDER} && \
    for folder in $(python -c 'import sys; print(*sys.path)'); do \
      for library in "$folder"/nvidia/*/lib/*.so*; do \
        link="{CUDA_FOLDER}/${{library##*/}}"; \
        if [ -e "$library" ] && [ ! -e "$link" ]; then ln -sf "$library" "$link"; fi; \
      done; \
    done"""
# Google mounts it on machines with RDMA. https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/configure-compute
NCCL_SCRIPT = "/usr/local/gib/scripts/set_nccl_env.sh"


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """What an image contains besides the project's code, in the order of its installation.

    The bundled template writes it as a Dockerfile, `wheels` installs it without Docker.
    """

    base: str
    requirements: Requirements | None  # in `REQUIREMENTS`; None if there are none
    trainer_wheel: ContextFile | None  # below `CODE`, as in a build by hand; None if not needed
    gpu: bool  # with symlinks to CUDA's libraries in `CUDA_FOLDER`

    @property
    def env(self) -> Mapping[str, str]:
        """The variables, with values as ENV takes them."""
        return _ENV | (_CUDA_ENV if self.gpu else {})


@dataclass(frozen=True, slots=True)
class Recipe:
    """The Dockerfile and the ignore file of a project's image, rendered or the user's own.

    A rendered Dockerfile has the stages ``environment`` (base and requirements) and, last, the code
    in `CODE`.
    """

    dockerfile: str  # the text, without a stamp
    ignore: str  # the text; it defines the context, without the wheel
    own_dockerfile: Path | None = None  # relative to the project; None for a rendered one
    own_ignore: Path | None = None
    wheel: ContextFile | None = None  # of the trainer package, for an image that needs it
    environment: EnvironmentSpec | None = None  # None unless the bundled template renders the text

    @property
    def path(self) -> str:
        """The Dockerfile's path: the user's, or where `render` writes it."""
        return str(self.own_dockerfile or "Dockerfile")

    @property
    def ignore_path(self) -> str:
        """The path of the ignore file, likewise."""
        return str(self.own_ignore or ".dockerignore")


def read_recipe(job: Job, folder: Path) -> Recipe:
    """Return the files that build the project's image, the user's own before rendered ones.

    ``image.dockerfile`` names the user's Dockerfile; without it a file called Dockerfile is used,
    unless `render` wrote it and it has not changed since. The same holds for .dockerignore; a
    custom Dockerfile without one gets all of the folder but what never belongs in an image.
    ImageError is raised if a file cannot be read, or something cannot be rendered.
    """
    own = _own_dockerfile(job, folder)
    own_ignore = _own_ignore(folder, own)
    requirements = None if own else _requirements(job, folder)
    if own_ignore:
        # What distlaunch notes there changes with each launch.
        ignore = f"{read_text(folder, own_ignore)}\n.distlaunch\n{_allowed_secrets(job, folder)}"
    else:
        ignore = _dockerignore(job, folder, None if own else _included(job, folder, requirements))
    is_needed = trainer_wheel.is_needed(folder, paths(folder, ignore), job.main[0])
    wheel = trainer_wheel.trainer_wheel() if is_needed else None
    if own:
        return Recipe(read_text(folder, own), ignore, own, own_ignore, wheel)
    base, gpu = job.image.base or DEFAULT_BASE, job.has_gpus
    spec = EnvironmentSpec(base, requirements, wheel, gpu)
    render = partial(_dockerfile, job, spec, _entrypoint(job, folder))
    text = render(folder)
    # A copy of the bundled template gives the same text.
    is_bundled = not has_template(folder, "Dockerfile") or text == render(None)
    return Recipe(text, ignore, None, own_ignore, wheel, spec if is_bundled else None)


def _dockerfile(
    job: Job, spec: EnvironmentSpec, entrypoint: Iterable[str], folder: Path | None
) -> str:
    """Render a Dockerfile; the project's template comes first, unless `folder` is None."""
    pip = spec.requirements
    return render_template(
        "Dockerfile",
        folder,
        job=job,
        base=spec.base,
        env=_ENV,
        gpu=spec.gpu,
        requirements=list(pip.files) if pip else [],
        requirements_folder=REQUIREMENTS,
        changed=pip.changed if pip else (),
        tensorflow_script=sed_script(gpu=spec.gpu),
        cuda_folder=CUDA_FOLDER,
        cuda_env=_CUDA_ENV,
        link_cuda=LINK_CUDA,
        trainer_wheel=spec.trainer_wheel.path if spec.trainer_wheel else None,
        install_trainer=trainer_wheel.install_command(CODE),
        entrypoint=entrypoint,
        code=CODE,
    )


def _entrypoint(job: Job, folder: Path) -> tuple[str, ...]:
    """Return the program; on machines with RDMA, Google's script sets NCCL's variables first."""
    program = ("python", "-m", *job.main)
    catalogue = machine_catalogue.of_project(folder)
    if not any(catalogue.machine(pool.machine.type).rdma for pool in job.cluster.pools if pool):
        return program
    command = f'if [ -f {NCCL_SCRIPT} ]; then source {NCCL_SCRIPT}; fi; exec "$@"'
    return ("bash", "-c", command, "bash", *program)


def _dockerignore(job: Job, folder: Path, included: list[str] | None) -> str:
    marked = sorted(file.parent.name for file in folder.glob("*/pyvenv.cfg"))
    text = render_template(
        "dockerignore",
        folder,
        job=job,
        included=included,
        secrets=list(secrets.NAMES),
        environments=map(_pattern, marked),
    )
    return text + _allowed_secrets(job, folder)


def _allowed_secrets(job: Job, folder: Path) -> str:
    """Return the rules that let `Image.allow_secrets` in, with what the context looks for."""
    paths = [_inner(folder, path, "allow_secrets") for path in job.image.allow_secrets]
    for path in paths:
        if not (folder / path).is_file():
            what, where = f"{path}: is a folder", "image.allow_secrets"
            raise ImageError(what, where=where, remedy="name each file")
    return "".join(f"# {secrets.ALLOW} {path}\n!{_pattern(path)}\n" for path in paths)


def _included(job: Job, folder: Path, requirements: Requirements | None) -> list[str]:
    """Return the patterns of what the image holds."""
    package = _package(job, folder, requirements)
    included = [_inner(folder, path, "include") for path in job.image.include]
    if (folder / resources.TRAINER).is_dir():  # from `eject`
        included.append(resources.TRAINER)
    files = requirements.files if requirements else ()
    return [_pattern(path) for path in dict.fromkeys([*files, *package, *included])]


def _package(job: Job, folder: Path, requirements: Requirements | None) -> list[str]:
    """Return the path of the program's package, none if a requirement may have it."""
    if job.script:
        return [_inner(folder, job.script, "script").partition("/")[0]]
    module = job.script_module or job.module
    name = module.partition(".")[0]
    for path in (name, f"{name}.py", *job.env.get("PYTHONPATH", "").split(":")):
        if path and path[0] != "/" and (folder / path).exists():
            return [path]
    part, lines = name.replace("_", "-").lower(), requirements.lines() if requirements else ()
    is_like_a_file = did_you_mean(name, [path.stem for path in folder.iterdir()])
    if not is_like_a_file and any(each.url or part in each.name for each in lines):
        return []
    key = "script_module" if job.script_module else "module"
    raise ImageError(
        f"{module}: neither the folder {name} nor {name}.py is in {folder}",
        where=key,
        remedy="name the program's module, or set env: {PYTHONPATH: FOLDER} to the folder that it "
        "is in",
    )


def _inner(folder: Path, path: str, key: str) -> str:
    """Return a path of the job file, cleaned; `key` is that of its section image, or script."""
    where = key if key == "script" else f"image.{key}"
    clean = posixpath.normpath(path)
    if not (folder / clean).exists():
        raise ImageError(f"{path}: no such file or folder in {folder}", where=where)
    return clean


def _pattern(path: str) -> str:
    if path == ".":
        return "**"
    if not path.isprintable():
        what = "its name has a character that no .dockerignore can hold"
        raise ImageError(what, where=repr(path), remedy="rename it")
    return pattern_for(path)


def _requirements(job: Job, folder: Path) -> Requirements | None:
    """Return what pip installs: nothing where the job names no file and there is none."""
    name = job.image.requirements
    if name is None and not (folder / DEFAULT_REQUIREMENTS).is_file():
        return None
    return read_requirements(folder, name or DEFAULT_REQUIREMENTS, gpu=job.has_gpus)


def _own_dockerfile(job: Job, folder: Path) -> Path | None:
    if job.image.dockerfile:
        path = Path(posixpath.normpath(job.image.dockerfile))
        if not (folder / path).is_file():
            raise ImageError(f"{path}: no such file in {folder}", where="image.dockerfile")
        return path
    return _own(folder, Path("Dockerfile"))


def _own_ignore(folder: Path, dockerfile: Path | None) -> Path | None:
    if dockerfile:
        beside = dockerfile.with_name(f"{dockerfile.name}.dockerignore")
        if (folder / beside).is_file():
            return beside
    return _own(folder, Path(".dockerignore"))


def _own(folder: Path, path: Path) -> Path | None:
    """Return a file's path if it is there and the user's own."""
    return path if (folder / path).is_file() and not is_rendered(read_text(folder, path)) else None
