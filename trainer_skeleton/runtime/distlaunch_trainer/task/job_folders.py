"""The folders that a job writes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .storage import join


@dataclass(frozen=True)
class Folders:
    """Where a job writes."""

    job: str
    model: str
    checkpoints: str
    logs: str


def folders_from(job_dir: str | None, environ: Mapping[str, str]) -> Folders:
    """Return the job's folders: those of ``--job-dir``, else those that Vertex AI names."""
    model = environ.get("AIP_MODEL_DIR", "").rstrip("/")
    if job_dir or not model:
        job = (job_dir or "job").rstrip("/") or "/"
        return Folders(job, join(job, "model"), join(job, "checkpoints"), join(job, "logs"))
    job = model.rpartition("/")[0]
    return Folders(
        job,
        model,
        environ.get("AIP_CHECKPOINT_DIR", "").rstrip("/") or join(job, "checkpoints"),
        environ.get("AIP_TENSORBOARD_LOG_DIR", "").rstrip("/") or join(job, "logs"),
    )
