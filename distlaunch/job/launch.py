"""A launch: what to launch and where, as plain frozen data, and ``--job-dir`` among its args."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.errors import UsageError
from distlaunch.job import vertex
from distlaunch.job.choices import job_choices
from distlaunch.job.overrides import job_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from distlaunch.job.model import Job, Pool

LAUNCH_LABEL = "distlaunch-launch"  # the label of a job with the id of its launch
JOB_DIR = "--job-dir"  # --job-dir=VALUE or --job-dir VALUE
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAX_NAME = 40  # characters of a job's name in its launch id, which is the value of a label


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What to launch."""

    folder: Path  # the project's
    job: Job  # with project and region
    job_dir: str | None = None  # requested: gs://…, on Slurm a path; None for a new one
    endpoint: str | None = None  # the URL that replaces Google's
    catalogue: Path | None = None  # the user's of machines; None for the project's, if any
    config: Path | None = None  # the file in one of Google's formats that the job was read from
    overrides: tuple[str, ...] = ()  # the values of --set, such as a.b=c
    cli_overrides: Mapping[str, str] = field(default_factory=dict)  # other options by their keys
    program_args: tuple[str, ...] = ()  # after --

    @property
    def is_for_emulator(self) -> bool:
        """Whether the endpoint is an emulator, which has no accounts."""
        return (self.endpoint or "").lower().startswith("http://")

    @property
    def requested_job_dir(self) -> str | None:
        """The requested folder for the job's output, by an option or in the job file.

        A file that `render` wrote names the common folder of all jobs of this name, which is not
        the folder of one.
        """
        in_file = vertex.output_directory(self.job)
        is_common = in_file == f"{self.job.bucket}/{self.job.name}"
        return self.job_dir or (None if is_common else in_file)

    def job_dir_of(self, launch_id: str) -> str | None:
        """Return a launch's job folder, None if there is neither a folder nor a bucket."""
        job = self.job
        if job.is_on_slurm:
            return self.job_dir or self.slurm_folder(launch_id)
        in_bucket = f"{job.bucket}/{job.name}/{launch_id}" if job.bucket else None
        return self.requested_job_dir or in_bucket

    def slurm_folder(self, launch_id: str) -> str:
        """Return the folder of a launch on Slurm, with its code, batch script and logs."""
        folder = Path(self.job.slurm.folder or "").expanduser()
        return str(folder / self.job.name / launch_id)

    def request(self, launch_id: str, image: str | None) -> dict[str, Any]:
        """Return the body of the call that creates the job."""
        return vertex.build_request(
            self.job,
            image=image,
            labels={LAUNCH_LABEL: launch_id},
            job_dir=self.job_dir_of(launch_id),
        )

    def fingerprint(self, image: str | None) -> str:
        """Return a hash of what is launched and where, the same for an identical launch.

        `image` is that of Vertex AI, by digest, or the digest of the code on Slurm.
        """
        job = self.job
        if job.is_on_slurm:
            return fingerprint([job_data(job), self.job_dir, image])
        job_dir = self.requested_job_dir or job.bucket
        choices = [
            [vertex.build_request(each, image=image, labels={}, job_dir=job_dir), each.region]
            for each in (choice.job for choice in self.choices)
        ]
        return fingerprint([choices, job.project, self.endpoint])

    @property
    def choices(self) -> tuple[LaunchRequest, ...]:
        """The launches to try: this one, then those on other machines and in other regions.

        Of several machines, each is tried in the regions that may offer it.
        """
        from distlaunch.job import machine_catalogue

        first, *others = job_choices(self.job)
        if first.scheduling.machines and others:
            catalogue = machine_catalogue.of_project(self.folder, self.catalogue)
            others = [job for job in others if catalogue.may_run(job.cluster, job.region or "")]
        return tuple(replace(self, job=job) for job in (first, *others))

    @property
    def next_regions(self) -> tuple[str, ...]:
        """The regions to which the job may be moved."""
        regions = dict.fromkeys(choice.job.region or "" for choice in self.choices)
        return tuple(region for region in regions if region != (self.job.region or ""))


def fingerprint(value: Any) -> str:
    """Return a hash of plain data."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def new_launch_id(name: str) -> str:
    """Return an id for a launch: the job's name, the time in UTC and four random characters."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{name[:_MAX_NAME].lower()}-{moment}-{secrets.token_hex(2)}"


def check_scheme(job_dir: str) -> None:
    """Raise a UsageError if a job folder is a URI, but not ``gs://…``."""
    match = _SCHEME.match(job_dir)
    if match and match[0] != "gs://":
        raise UsageError(
            f"{JOB_DIR} {job_dir}: unsupported URI scheme {match[0]}; expected a local path or "
            "gs://BUCKET/FOLDER"
        )


def job_dir_in(args: Iterable[str]) -> str | None:
    """Return the value of the last ``--job-dir``, None without one."""
    values: list[str] = []
    list(change_job_dir(args, values.append))
    return next(filter(None, reversed(values)), None)


def without_job_dir(args: Iterable[str]) -> Iterator[str]:
    """Yield the args without any ``--job-dir``."""
    return change_job_dir(args, lambda _: None)


def change_job_dir(args: Iterable[str], change: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the args with a function applied to each value of ``--job-dir``; None removes it."""
    remaining = iter(args)
    for arg in remaining:
        name, equals, value = arg.partition("=")
        if name != JOB_DIR:
            yield arg
            continue
        job_dir = change(value if equals else next(remaining, ""))
        if job_dir is not None:
            yield from (f"{JOB_DIR}={job_dir}",) if equals else (JOB_DIR, job_dir)


def replace_job_dir(job: Job, job_dir: str) -> Job:
    """Return a job whose args name another folder where they named the chief's, in every pool."""
    before = job_dir_in(job.args)

    def changed(args: Iterable[str]) -> tuple[str, ...]:
        return tuple(change_job_dir(args, lambda value: job_dir if value == before else value))

    def change_pool(pool: Pool) -> Pool:
        if pool.program is None:
            return pool
        return replace(pool, program=replace(pool.program, args=changed(pool.program.args)))

    return replace(job, args=changed(job.args), cluster=job.cluster.map_pools(change_pool))
