"""The checks of a job on Slurm: its code, the Python there, the folder, and Slurm's verdict.

Slurm itself judges the job (``sbatch --test-only``): partition, account, limits, nodes and GPUs.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.checks import (
    cost_limit,
    data,
    limits,
    required_fields,
    slurm_python,
    source_location,
    trainer,
)
from distlaunch.checks.problem import error, warning
from distlaunch.checks.project import gpus, imports
from distlaunch.checks.report import Report
from distlaunch.engines.slurm import commands
from distlaunch.engines.slurm.batch import batch_script, build_request
from distlaunch.engines.slurm.engine import SlurmEngine
from distlaunch.engines.slurm.ownership import find_exposure
from distlaunch.errors import ImageError, SlurmError, SlurmUnreachable, did_you_mean
from distlaunch.image.code import read_code
from distlaunch.job.launch import new_launch_id
from distlaunch.job.vertex.view import job_request
from distlaunch.resources import TRAINER
from distlaunch.text import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.slurm_python import InstalledThere
    from distlaunch.checks.trainer import Trainer
    from distlaunch.engines.code_files import CodeFiles
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.model import Job

_OF_ONE_MACHINE = {"btrfs", "ext3", "ext4", "overlay", "tmpfs", "xfs"}  # types of file systems
_CLOUD_SETTINGS = (
    *("project", "region", "bucket", "service_account", "network", "tensorboard", "experiment"),
    *("experiment_run", "reservation", "persistent_resource", "reduction_server", "vertex"),
)


def run_checks(launch: LaunchRequest, *, offline: bool = False, run: bool = False) -> Report:
    """Check a job on Slurm; nothing is copied or submitted."""
    request, problems = job_request(launch), list(required_fields.problems(launch))
    is_complete = not problems
    bundled = trainer.find_trainer(launch)
    problems += gpus.idle_stop(launch.job, is_bundled=bundled is not None)
    if run:
        problems += trainer.run_one_step(launch, bundled)
    code, plan = None, None
    try:
        code = read_code(launch.job, launch.folder)
    except ImageError as refusal:
        problems += [
            error("image-refused", each.where, each.what, each.remedy or "leave it out")
            for each in refusal.problems
        ]
    problems += cost_limit.problems(launch, ())
    problems += gpus.unequal(request, is_bundled=bundled is not None)
    remedy = "remove it; 'distlaunch shell' works without it"
    problems += limits.ignored_web_access(request, "on Slurm", remedy)
    there = slurm_python.read_environment(launch.job)
    needs_trainer = bundled is not None or launch.job.is_script
    problems += slurm_python.problems(launch.job, there, needs_trainer=needs_trainer)
    if code:
        problems += _code_problems(launch, code, bundled, there)
        paths = [path for path, _ in code.sizes]
        plan, data_problems = data.check_data(launch, request, bundled, paths, None)
        problems += data_problems
    if is_complete:
        problems += _folder_problems(Path(launch.slurm_folder("ID")))
        problems += [] if offline else _job_dir_problems(launch)
    answer = ""
    if not offline and is_complete:
        answer, refusals = _ask_slurm(launch)
        problems += refusals
    located = source_location.locate(problems, launch)
    return Report(
        request=request,
        cluster=launch.job.cluster.describe(),
        problems=tuple(sorted(located, key=lambda problem: problem.severity != "error")),
        data=plan,
        changed_task=bundled.changed_task if bundled else "",
        engine="slurm",
        location=f"on Slurm, in {launch.job.slurm.folder or 'no folder'}",
        notes=tuple(_notes(launch.job, code, answer)),
    )


def _notes(job: Job, code: CodeFiles | None, answer: str) -> Iterator[tuple[str, str]]:
    if code:
        own = [path for path, _ in code.sizes if not path.startswith(f"{TRAINER}/")]
        yield "code", f"{plural(len(own), 'file')} and the trainer package, to be copied"
    if answer:
        yield "slurm", answer
    left_out = [name for name in _CLOUD_SETTINGS if getattr(job, name)]
    left_out += ["machine"] if any(pool and pool.machine.type for pool in job.cluster.pools) else []
    left_out += ["image.repository"] if job.image.repository else []
    left_out += ["image.builder"] if job.image.builder != "auto" else []
    left_out += ["scheduling.strategy"] if job.scheduling.strategy != "STANDARD" else []
    if left_out:
        yield "left out", f"{', '.join(left_out)}: of Vertex AI"


def _code_problems(
    launch: LaunchRequest,
    code: CodeFiles,
    bundled: Trainer | None,
    there: InstalledThere,
) -> Iterator[Problem]:
    """Yield the problems of the project's code where it will run."""
    job, folder = launch.job, launch.folder
    files = frozenset(path for path, _ in code.sizes if (folder / path).is_file())
    starts = imports.started_modules(job, folder, bundled)
    path = job.env.get("PYTHONPATH", "")
    project = imports.ProjectCode(folder, files, starts, there, there.runtime, path)
    yield from imports.syntax_problems(project)
    if there.is_known and "PYTHONPATH" not in os.environ and not any(each in path for each in "/$"):
        yield from imports.start_problems(project, job)
    if bundled:
        yield from trainer.code_problems(bundled, job, folder)
        yield from trainer.role_problems(bundled, job_request(launch))


def _folder_problems(folder: Path) -> Iterator[Problem]:
    """Yield why a launch cannot have its folder, or other nodes may not see it."""
    where = "slurm.folder"
    with suppress(OSError):
        if exposure := find_exposure(folder):
            yield error("slurm-folder", where, *exposure)
            return
    above = next(path for path in folder.parents if path.is_dir())
    if not os.access(above, os.W_OK | os.X_OK):
        remedy = "name a folder of yours that all nodes share"
        yield error("slurm-folder", where, f"{above}: cannot be written by you", remedy)
        return
    kind = _file_system(above)
    with suppress(SlurmError):
        hosts = set(commands.run("sinfo", "--noheader", "--format=%n").split())
        others = hosts - {socket.gethostname(), socket.gethostname().partition(".")[0]}
        if kind in _OF_ONE_MACHINE and others:
            what = f"{above} is on {kind} of this machine, which other nodes may not see"
            remedy = "name a folder on a file system that all nodes share"
            yield warning("slurm-folder", where, what, remedy)


def _job_dir_problems(launch: LaunchRequest) -> Iterator[Problem]:
    """Yield a problem if another job still writes into the requested job folder."""
    if launch.job_dir is None or not Path(launch.job_dir, "launch.json").is_file():
        return
    engine = SlurmEngine(Path(launch.job.slurm.folder or ""), launch.folder)
    with suppress(SlurmError):
        job = engine.get(launch.job_dir)
        if not job.has_ended:
            what = f"the job {job.id} is {job.state} and writes there"
            remedy = f"wait for it, or run 'distlaunch cancel {job.id}'"
            yield error("job-dir-in-use", "--job-dir", what, remedy)


def _file_system(folder: Path) -> str:
    """Return the type of the file system of a folder, empty if unknown."""
    best, kind = "", ""
    with suppress(OSError):
        for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            _, point, fs, *_ = line.split()
            if folder.is_relative_to(point) and len(point) >= len(best):
                best, kind = point, fs
    return kind


def _ask_slurm(launch: LaunchRequest) -> tuple[str, list[Problem]]:
    """Return what Slurm would do with the job, or why it would refuse it or never start it."""
    try:
        if problem := _partition_problem(launch.job, commands.read_partitions()):
            return "", [problem]
        body = build_request(launch, new_launch_id(launch.job.name))
        return commands.judge_batch(batch_script(body, launch.folder)), []
    except SlurmUnreachable as problem:
        remedy = "'sinfo' shows whether the cluster is up"
        return "", [warning("slurm-unreachable", "slurm", str(problem), remedy)]
    except SlurmError as refusal:
        remedy = refusal.remedy or "correct slurm: and cluster:; 'sinfo --long' lists what there is"
        return "", [error("slurm-refused", "slurm", refusal.what, remedy)]


def _partition_problem(job: Job, partitions: Sequence[commands.Partition]) -> Problem | None:
    """Return why a job would wait without end, None for partitions that can run it.

    Slurm accepts such jobs, unless it is configured otherwise (EnforcePartLimits).
    """
    names = job.slurm.partition.split(",") if job.slurm.partition else []
    known = sorted({each.name for each in partitions})
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known).removeprefix("; ")
            remedy = hint or f"the cluster has {', '.join(known)}"
            return error("slurm-partition", "slurm.partition", f"no partition {name}", remedy)
    chosen = [each for each in partitions if not names or each.name in names]
    if not any(each.is_up for each in chosen):
        what = f"partition {job.slurm.partition or 'of the cluster'} is down"
        return error("slurm-partition", "slurm.partition", what, "choose another, or wait")
    limit = job.slurm.time or job.scheduling.timeout or 0
    if all(each.limit is not None and each.limit < limit for each in chosen):
        longest = max(each.limit or 0 for each in chosen)
        what = f"{duration(limit)} is longer than the {duration(longest)} of the partition"
        key = "slurm.time" if job.slurm.time else "scheduling.timeout"
        return error("slurm-limit", key, what, "write a shorter time, or choose another partition")
    gpus = max((pool.machine.task_gpus for pool in job.cluster.pools if pool), default=0)
    most = max((each.gpus for each in chosen), default=0)
    if gpus > most:
        what = f"a task needs {gpus} GPUs, and the nodes of the partition have {most or 'none'}"
        remedy = "write fewer gpus:, or choose another slurm.partition"
        return error("slurm-gpus", "cluster.chief.gpus", what, remedy)
    return None
