"""The inputs of a job that is submitted again, with changes and a new job folder."""

from __future__ import annotations

import json
import re
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.job import vertex
from distlaunch.job.launch import LAUNCH_LABEL, change_job_dir
from distlaunch.job.vertex import fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_INPUT_FIELDS = fields.TUNED | {"displayName", "jobSpec", "labels", "encryptionSpec"}
_VARIABLE = re.compile(r"\$\{(?=[A-Za-z_][A-Za-z0-9_]*\})")


def input_fields(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's resource without the fields that Google fills in."""
    return {name: value for name, value in job.items() if name in _INPUT_FIELDS}


def override_inputs(
    inputs: Mapping[str, Any], overrides: Sequence[str], program_args: Sequence[str]
) -> dict[str, Any]:
    """Return a job's inputs with fields overridden by ``--set`` and arguments appended."""
    from distlaunch.job.load import load_job

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "job.json")
        text = json.dumps(inputs, ensure_ascii=False)
        config.write_text(_VARIABLE.sub("$${", text), encoding="utf-8")
        job = load_job(Path(folder), config=config, overrides=overrides, args=program_args).job
    return vertex.build_request(job, image=None, labels={}, job_dir=None)


def output_directory(body: Mapping[str, Any]) -> str | None:
    """Return the job folder that a request names, without a trailing slash."""
    uri = fields.job_spec(body).get("baseOutputDirectory", {}).get("outputUriPrefix")
    return uri.rstrip("/") if uri else None


def with_new_folder(inputs: Mapping[str, Any], launch_id: str) -> dict[str, Any]:
    """Return a copy of a job's inputs with a new job folder wherever they name the old one."""
    body = deepcopy(dict(inputs))
    old_id = (inputs.get("labels") or {}).get(LAUNCH_LABEL)

    def rename(folder: str) -> str:
        return _new_folder(folder, old_id, launch_id) if folder.startswith("gs://") else folder

    spec = fields.job_spec(body)
    directory = output_directory(body)
    if directory:
        spec["baseOutputDirectory"]["outputUriPrefix"] = rename(directory)
    for pool in spec.get("workerPoolSpecs", []):
        for program in filter(None, (pool.get("containerSpec"), pool.get("pythonPackageSpec"))):
            for name in program.keys() & {"command", "args"}:
                program[name] = list(change_job_dir(program[name], rename))
    return body


def _new_folder(folder: str, old_id: str | None, launch_id: str) -> str:
    """Return the folder with the launch id replaced, or a folder of the launch below it."""
    bucket, *path = folder.removeprefix("gs://").rstrip("/").split("/")
    if old_id in path:
        path = [launch_id if part == old_id else part for part in path]
    else:
        path.append(launch_id)
    return "gs://" + "/".join([bucket, *path])
