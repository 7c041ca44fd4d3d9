"""The files that `render` writes, and the commands that submit the job without `submit`."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from distlaunch import paths
from distlaunch.errors import DistlaunchError, ImageError, os_reason
from distlaunch.files import atomic_write, make_folder
from distlaunch.image.recipe import read_recipe
from distlaunch.image.reference import is_google
from distlaunch.job import vertex
from distlaunch.template import is_rendered, render_template, stamped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from distlaunch.image.recipe import Recipe
    from distlaunch.job.model import Job

Format = Literal["vertex", "ai-platform", "slurm", "jobset"]

DOCKERFILE, IGNORE, CONFIG = "Dockerfile", ".dockerignore", "config.yaml"
JOBSET, BATCH = "jobset.yaml", "batch.sh"
IGNORE_ELSEWHERE = "Dockerfile.dockerignore"  # beside a Dockerfile that is not in the context


_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rendered:
    """Files that are ready to be written."""

    files: Mapping[str, str]  # text by name
    notes: tuple[str, ...]  # what they cannot express, a line each
    commands: tuple[str, ...]  # to type next, in the project's folder
    wheel: tuple[Path, bytes] | None = None  # to write besides: where the build looks for it

    def write(self, folder: Path) -> None:
        """Write all files into a folder, which is made where it is missing."""
        taken = [folder / name for name in self.files if _is_taken(folder / name)]
        if taken:
            raise DistlaunchError(
                f"{', '.join(map(str, taken))} would be overwritten, and is not as distlaunch "
                "wrote it; remove it, or choose another folder with --output DIR"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in self.files.items():
                # Those that are not of the image have the values of env.
                atomic_write(folder / name, text, is_private=name in (BATCH, CONFIG, JOBSET))
            if self.wheel:
                path, content = self.wheel
                make_folder(path.parent, below=path.parents[len(paths.WHEELS.parts)])
                atomic_write(path, content)
        except OSError as error:
            raise DistlaunchError(f"{folder}: cannot be written ({os_reason(error)})") from None


def render(job: Job, folder: Path, output: Path, format: Format) -> Rendered:  # noqa: A002
    """Render the files of a job, to be written to `output`; `format` is that of config.yaml.

    ``slurm`` is a batch script, ``jobset`` a manifest of Kubernetes in place of config.yaml.
    """
    if format == "slurm":
        return _render_batch(job, folder, output)
    builds = vertex.needs_image(job)
    image = _image(job) if builds else job.image.uri or ""
    recipe = read_recipe(job, folder) if builds else None
    is_in_project = output.resolve() == folder.resolve()
    files = _image_files(recipe, is_in_project=is_in_project) if recipe else {}
    if format == "jobset":
        files[JOBSET], notes = render_jobset(job, image, folder), []
    else:
        files[CONFIG], config_notes = render_config(job, format=format, image=image, folder=folder)
        notes = list(config_notes)
    if recipe is None:
        notes.append("the job names its images, so that there is nothing to build")
    elif recipe.own_dockerfile:
        notes.append(f"the image is built by your own {recipe.own_dockerfile}, which is left alone")
    elif recipe.own_ignore:
        allow = f"; it must include {recipe.wheel.path}" if recipe.wheel else ""
        notes.append(f"your own {recipe.own_ignore} is left alone{allow}")
    commands = [*(_docker(job, recipe, image, folder, output) if recipe else ())]
    config = _relative(folder, output / (JOBSET if format == "jobset" else CONFIG))
    skips = format == "vertex" and _skips_a_pool(job)
    if skips:
        notes.append(
            "config.yaml: a pool of the cluster is skipped, which gcloud's --config does not take; "
            "'distlaunch submit' does"
        )
    if format == "jobset":
        commands.append(shlex.join(["kubectl", *_namespace(job), "apply", "-f", config]))
    elif format == "vertex" and not skips:
        commands.append(_gcloud(job, config))
    else:
        commands.append(shlex.join(["distlaunch", "submit", f"--config={config}"]))
    wheel = recipe.wheel if recipe else None
    content = (folder / wheel.path, wheel.content or b"") if wheel else None
    return Rendered(files, tuple(notes), tuple(commands), content)


def _image_files(recipe: Recipe, *, is_in_project: bool) -> dict[str, str]:
    """Return Dockerfile and ignore file, without those that the user wrote."""
    if recipe.own_dockerfile is not None:
        return {}
    files = {DOCKERFILE: stamped(recipe.dockerfile)}
    if recipe.own_ignore is None:
        allowed = f"\n# For the environment.\n!{recipe.wheel.path}\n" if recipe.wheel else ""
        files[IGNORE if is_in_project else IGNORE_ELSEWHERE] = stamped(recipe.ignore + allowed)
    return files


def render_jobset(job: Job, image: str, folder: Path | None = None) -> str:
    """Render the manifest of a JobSet, which is for ``kubectl apply``."""
    from distlaunch.job.jobset import build_jobset, jobset_name

    options = "".join(f" {word}" for word in _namespace(job))
    values = {"name": jobset_name(job), "tasks": job.cluster.describe(), "options": options}
    manifest = build_jobset(job, image)
    return stamped(render_template("jobset.yaml", folder, job=job, manifest=manifest, **values))


def _namespace(job: Job) -> list[str]:
    return [f"--namespace={job.kubernetes.namespace}"] if job.kubernetes.namespace else []


def _render_batch(job: Job, folder: Path, output: Path) -> Rendered:
    """Render the batch script of a job on Slurm, with the commands that `submit` replaces."""
    from distlaunch.engines.slurm.batch import batch_script, build_request
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.resources import trainer_package

    launch = LaunchRequest(folder, job)
    request = build_request(launch, f"{job.name}-by-hand")
    target = request["launch_folder"]
    package = job.script or (job.script_module or job.module).partition(".")[0]
    sources = [package, *job.image.include, str(trainer_package())]
    commands = (
        shlex.join(["mkdir", "-p", f"{target}/code", f"{target}/task-logs"]),
        shlex.join(["cp", "-r", *sources, f"{target}/code"]),
        shlex.join(["sbatch", _relative(folder, output / BATCH)]),
    )
    script = batch_script(request, folder)
    return Rendered({BATCH: script}, (), commands)


def render_config(
    job: Job,
    *,
    format: Format,  # noqa: A002
    image: str,
    folder: Path | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Render config.yaml; return it, and what it cannot express or should not contain.

    ``vertex`` is what ``gcloud ai custom-jobs create --config`` takes (or ``hp-tuning-jobs``, for a
    job that is tuned), ``ai-platform`` the file with masterType. `image` is that of the job's own
    program.
    """
    if format == "ai-platform":
        from distlaunch.job.ai_platform.from_job import from_job

        training_input, notes = from_job(job, image)
        values: dict[str, Any] = {"training_input": _escape_variables(training_input)}
    else:
        has_own_folder = vertex.output_directory(job) or not job.bucket
        job_dir = None if has_own_folder else f"{job.bucket}/{job.name}"
        request = vertex.build_request(job, image=image, labels={}, job_dir=job_dir)
        values = {"request": request, "is_tuned": vertex.is_tuned(job)}
        notes = tuple(_request_notes(request))
    return stamped(
        render_template(f"config.{format}.yaml", folder, job=job, image=image, **values)
    ), notes


def _request_notes(request: dict[str, Any]) -> Iterator[str]:
    from distlaunch.redaction import hide_secrets

    for variable in dict.fromkeys(_VARIABLE.findall(str(request))):
        yield (
            f"config.yaml: {variable}: gcloud keeps it; where 'distlaunch submit --config' reads "
            f"the file, write ${variable}"
        )
    if secrets := hide_secrets(request)[1]:
        yield (
            f"config.yaml: contains the values of {', '.join(secrets)}, which look secret; do not "
            "commit it"
        )


def _escape_variables(value: Any) -> Any:
    """Write data so that no variables are filled in when the file is read by distlaunch."""
    if isinstance(value, dict):
        return {key: _escape_variables(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escape_variables(item) for item in value]
    return _VARIABLE.sub(r"$\g<0>", value) if isinstance(value, str) else value


def _image(job: Job) -> str:
    if job.image.repository is None:
        raise ImageError(
            "image.repository: is missing; set where the image is pushed to, e.g. "
            "us-central1-docker.pkg.dev/my-project/training/digits"
        )
    return f"{job.image.repository}:latest"


def _docker(job: Job, recipe: Recipe, image: str, folder: Path, output: Path) -> Iterator[str]:
    host = image.partition("/")[0]
    if is_google(host):
        yield shlex.join(["gcloud", "auth", "configure-docker", host])
    file = recipe.own_dockerfile
    if file is None and output.resolve() != folder.resolve():
        file = output / DOCKERFILE
    options = ["--file", _relative(folder, folder / file)] if file else []
    options += ["--target", job.image.target] if job.image.target else []
    options += [f"--build-arg={name}={value}" for name, value in job.image.build_args.items()]
    yield shlex.join(["docker", "build", "--platform=linux/amd64", *options, "--tag", image, "."])
    yield shlex.join(["docker", "push", image])


def _skips_a_pool(job: Job) -> bool:
    """Whether a pool without machines comes before one with; gcloud looks only at untuned jobs."""
    pools = job.cluster.pools[1:]
    has_machines = [pool is not None and pool.count > 0 for pool in pools]
    has_machines[1] |= job.reduction_server is not None
    return not vertex.is_tuned(job) and has_machines != sorted(has_machines, reverse=True)


def _gcloud(job: Job, config: str) -> str:
    values = {
        "project": job.project,
        "region": job.region,
        "display-name": job.name,
        "labels": ",".join(f"{name}={value}" for name, value in job.labels.items()),
        "kms-key": job.vertex.get("encryptionSpec", {}).get("kmsKeyName"),
        "config": config,
    }
    kind = "hp-tuning-jobs" if vertex.is_tuned(job) else "custom-jobs"
    options = [f"--{name}={value}" for name, value in values.items() if value]
    return shlex.join(["gcloud", "ai", kind, "create", *options])


def _relative(folder: Path, path: Path) -> str:
    """Return a path as it is typed in the project's folder."""
    try:
        return path.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        return str(path)


def _is_taken(path: Path) -> bool:
    if path.is_symlink() or path.is_dir():
        return True
    try:
        return path.exists() and not is_rendered(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return True
