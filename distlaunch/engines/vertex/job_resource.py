"""A job as Google's JSON → a `JobStatus`."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any, cast

from distlaunch import timestamps
from distlaunch.engines.api import JobState, JobStatus
from distlaunch.engines.vertex.jobs import parse_name, state
from distlaunch.engines.vertex.log_query import message_of, task_names, task_of_replica
from distlaunch.failure_reasons import STOCKOUT
from distlaunch.job.launch import LAUNCH_LABEL
from distlaunch.job.trial import INFEASIBLE, SUCCEEDED, Study, Trial
from distlaunch.job.vertex import fields
from distlaunch.job.vertex.view import view_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.vertex import Collection

_STOCKOUT = re.compile(rf"stockout|{STOCKOUT}", re.IGNORECASE)


def read_status(job: Mapping[str, Any], project: str) -> JobStatus:
    """Return the status of a custom job or a tuning job of a project.

    Google's resource names have the project's number, and the URL of its console the id.
    """
    name, spec = parse_name(job["name"]), fields.job_spec(job)
    current = state(job)
    end = job.get("endTime") if current.is_terminal else timestamps.format(time.time())
    study = _read_study(job)
    metric = study.metric if study else ""
    container = (spec.get("workerPoolSpecs") or [{}])[0].get("containerSpec") or {}
    folder = (spec.get("baseOutputDirectory") or {}).get("outputUriPrefix")
    return JobStatus(
        id=_job_id(job),
        name=job["name"],
        state=current,
        request=view_request(job, cast("Collection", name.collection), project, name.region),
        tasks=task_names(job),
        display_name=job.get("displayName"),
        created=job.get("createTime"),
        started=job.get("startTime"),
        ended=job.get("endTime"),
        updated=job.get("updateTime"),
        error=error_message(job),
        is_stockout=_is_stockout(job),
        job_dir=folder or None,
        program=(*(container.get("command") or ["ENTRYPOINT"]), *(container.get("args") or [])),
        scheduling=spec.get("scheduling") or {},
        study=study,
        trials=tuple(_read_trial(trial, metric, end) for trial in job.get("trials") or ()),
        console=_console_url(job, project),
        tensorboard=_tensorboard_url(job),
        web_access=_web_access(job),
        resource=job,
    )


def _read_study(job: Mapping[str, Any]) -> Study | None:
    """Return the search of a tuning job, with the first of its metrics, None of another job."""
    if parse_name(job["name"]).collection != "hyperparameterTuningJobs":
        return None
    spec = job.get("studySpec") or {}
    metric = (spec.get("metrics") or [{}])[0]
    return Study(
        metric=str(metric.get("metricId") or ""),
        goal=str(metric.get("goal") or "").lower(),
        parameters=tuple(each["parameterId"] for each in spec.get("parameters") or ()),
        trials=int(job.get("maxTrialCount") or 0),
    )


def _read_trial(trial: Mapping[str, Any], metric: str, end: str | None) -> Trial:
    measurement = trial.get("finalMeasurement") or (trial.get("measurements") or [{}])[-1]
    # Google's JSON leaves out a number that is 0.
    values = {each.get("metricId"): each.get("value", 0) for each in measurement.get("metrics", ())}
    number = float(values.get(metric, math.nan))
    result = number if math.isfinite(number) else None
    return Trial(
        id=int(trial.get("id") or 0),
        parameters={
            each["parameterId"]: each.get("value", "") for each in trial.get("parameters") or ()
        },
        state=str(trial.get("state") or "REQUESTED"),
        metric=result,
        step=None if result is None else int(measurement.get("stepCount") or 0),
        seconds=timestamps.seconds_between(trial.get("startTime"), trial.get("endTime") or end),
        reason=" ".join(str(trial.get("infeasibleReason") or "").split()),
    )


def _job_id(job: Mapping[str, Any]) -> str:
    """Return the launch id of a job that distlaunch submitted, and Google's number of others."""
    return str((job.get("labels") or {}).get(LAUNCH_LABEL) or parse_name(job["name"]).id)


def _is_stockout(job: Mapping[str, Any]) -> bool:
    """Whether a job has ended because its region has no machines for it.

    Such a job never started. Quotas have other messages
    (https://docs.cloud.google.com/compute/docs/resource-error).
    """
    if "startTime" in job:
        return False
    is_short = state(job) is JobState.FAILED and _names_stockout(job)
    return is_short or state(job) is JobState.EXPIRED


def is_preempted(job: Mapping[str, Any]) -> bool:
    """Whether a Spot job that was running has failed because its machines were taken away.

    Vertex AI retries it, and then reports a stockout
    (https://docs.cloud.google.com/vertex-ai/docs/training/use-spot-vms).
    """
    is_spot = (fields.job_spec(job).get("scheduling") or {}).get("strategy") == "SPOT"
    is_failed = state(job) is JobState.FAILED and "startTime" in job
    return is_spot and is_failed and _names_stockout(job)


def _names_stockout(job: Mapping[str, Any]) -> bool:
    return _STOCKOUT.search(platform_message(job)) is not None


def platform_message(job: Mapping[str, Any]) -> str:
    """Return Vertex AI's own words of a job's error, without the lines of a task that it quotes."""
    return error_message(job).partition("exited with a non-zero status")[0]


def error_message(job: Mapping[str, Any]) -> str:
    """Return Google's reason for a job's failure in one line, empty while there is none.

    It quotes the last lines of a task, which are JSON if the task writes structured logs.
    """
    lines = str((job.get("error") or {}).get("message", "")).splitlines()
    return " ".join(" ".join(map(message_of, lines)).split())


def _console_url(job: Mapping[str, Any], project: str) -> str:
    """Return the URL of a job's page in Google's console."""
    name = parse_name(job["name"])
    return (
        f"https://console.cloud.google.com/agent-platform/locations/{name.region}/training/"
        f"{name.id}?project={project}"
    )


def _web_access(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the URIs of the shells in running tasks, also in those of trials.

    https://cloud.google.com/vertex-ai/docs/training/monitor-debug-interactive-shell
    """
    trials = [(f"trial:{trial.get('id')}/", trial) for trial in job.get("trials") or ()]
    uris = (
        ([*map(int, re.findall("[0-9]+", node))], prefix + task_of_replica(job, node), uri)
        for prefix, part in [("", job), *trials]
        if not state(job).is_terminal and part.get("state") not in (SUCCEEDED, INFEASIBLE)
        for node, uri in (part.get("webAccessUris") or {}).items()
    )
    return {task: uri for _, task, uri in sorted(uris)}


def _tensorboard_url(job: Mapping[str, Any]) -> str | None:
    """Return the URL of a job's page in its Vertex AI TensorBoard, None without one.

    It has the form of ``custom_job_tensorboard_console_uri`` of google-cloud-aiplatform.
    """
    board: str | None = fields.job_spec(job).get("tensorboard")
    if not board:
        return None
    name = parse_name(job["name"])
    path = f"{board}/experiments/{name.id}".replace("/", "+")
    return f"https://{name.region}.tensorboard.googleusercontent.com/experiment/{path}"
