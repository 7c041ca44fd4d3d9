"""A Job → a JobSet for Kubernetes, with TF_CONFIG in it: the image needs no wrapper.

The names of its pods are known beforehand: ``NAME-TYPE-0-INDEX``, in the subdomain NAME
(https://jobset.sigs.k8s.io/docs/concepts/). The index of a pod comes from an annotation, by a
variable that is set before TF_CONFIG and is filled in there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from distlaunch.job.model import IDLE_CODE
from distlaunch.job.tasks import POOL_ROLES, Task
from distlaunch.job.tf_config import EXPECTED_GPUS, replica_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.job.model import Job, Pool
    from distlaunch.job.tasks import PoolRole

_INDEX = "DISTLAUNCH_TASK_INDEX"
_INDEX_ANNOTATION = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# As on Vertex AI.
_PORT = 2222
_LONGEST = 40  # characters of a name: with type and index it is the name of a host
# https://docs.cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral
_BUCKET_DRIVER = "gcsfuse.csi.storage.gke.io"
_SPOT = "cloud.google.com/gke-spot"
# What `stop_if` ends is not restarted
# (https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy).
_EXIT_CODES = {"containerName": "trainer", "operator": "In", "values": [IDLE_CODE]}
_IDLE_POD = {"action": "FailJob", "onExitCodes": _EXIT_CODES}
_IDLE_JOB = {"name": "idle", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}


def jobset_name(job: Job) -> str:
    """Return the name of a job as Kubernetes takes it."""
    return job.name.replace("_", "-")[:_LONGEST].strip("-")


def build_jobset(job: Job, image: str) -> dict[str, Any]:
    """Return the manifest; `image` is that of the pools without one."""
    name, settings = jobset_name(job), job.kubernetes
    metadata: dict[str, Any] = {"name": name}
    if settings.namespace:
        metadata["namespace"] = settings.namespace
    labels = dict(job.labels)
    if settings.queue:
        labels["kueue.x-k8s.io/queue-name"] = settings.queue
    if labels:
        metadata["labels"] = labels
    pools = zip(POOL_ROLES, job.cluster.pools, strict=True)
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            # A task cannot rejoin a running cluster: all start again, and resume.
            "failurePolicy": {
                "maxRestarts": settings.restarts,
                **({"rules": [_IDLE_JOB]} if job.stop_if else {}),
            },
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["chief"]},
            "replicatedJobs": [
                _replicated_job(job, role, pool, image)
                for role, pool in pools
                if pool and pool.count
            ],
        },
    }


def _replicated_job(job: Job, role: PoolRole, pool: Pool, image: str) -> dict[str, Any]:
    return {
        "name": role.task_type,
        "replicas": 1,
        "template": {
            "spec": {
                "backoffLimit": 0,
                "completionMode": "Indexed",
                "completions": pool.count,
                "parallelism": pool.count,
                "template": _pod(job, role, pool, image),
                **({"podFailurePolicy": {"rules": [_IDLE_POD]}} if job.stop_if else {}),
            }
        },
    }


def _pod(job: Job, role: PoolRole, pool: Pool, image: str) -> dict[str, Any]:
    program, machine = pool.program, pool.machine
    container: dict[str, Any] = {
        "name": "trainer",
        "image": (program and program.image) or job.image.uri or image,
    }
    if program and program.command:
        container["command"] = list(map(_escape, program.command))
    args = program.args if program else job.args
    if args:
        container["args"] = list(map(_escape, args))
    container["env"] = list(_variables(job, role, pool))
    gpus = machine.task_gpus
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec: dict[str, Any] = {"restartPolicy": "Never"}
    if job.kubernetes.service_account:
        spec["serviceAccountName"] = job.kubernetes.service_account
    selector = {}
    if gpus and machine.accelerator:
        kind = machine.accelerator.lower().replace("_", "-")
        selector["cloud.google.com/gke-accelerator"] = kind
    if job.scheduling.strategy == "SPOT":
        selector[_SPOT] = "true"
        toleration = {"key": _SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"}
        spec["tolerations"] = [toleration]
    if selector:
        spec["nodeSelector"] = selector
    pod: dict[str, Any] = {"spec": spec}
    if job.kubernetes.mount_bucket and job.bucket:
        bucket = job.bucket.removeprefix("gs://").partition("/")[0]
        pod["metadata"] = {"annotations": {"gke-gcsfuse/volumes": "true"}}
        driver = {
            "driver": _BUCKET_DRIVER,
            "volumeAttributes": {"bucketName": bucket},
        }
        spec["volumes"] = [{"name": "bucket", "csi": driver}]
        container["volumeMounts"] = [{"name": "bucket", "mountPath": f"/gcs/{bucket}"}]
    spec["containers"] = [container]
    return pod


def _variables(job: Job, role: PoolRole, pool: Pool) -> Iterator[dict[str, Any]]:
    """Yield the variables of a pool's container; a later one may name an earlier one."""
    name = jobset_name(job)
    addresses = {
        task: f"{name}-{task.type}-0-{task.index}.{name}:{_PORT}" for task in job.cluster.tasks()
    }
    folder = f"{job.bucket}/{job.name}" if job.bucket else None
    task = Task(role.task_type)
    variables: Mapping[str, str] = replica_environment(addresses, task, job_id=name, job_dir=folder)
    yield {"name": _INDEX, "valueFrom": {"fieldRef": {"fieldPath": _INDEX_ANNOTATION}}}
    program = dict(pool.program.env) if pool.program else {}
    for key, value in {**job.task_env, **program}.items():
        yield {"name": key, "value": _escape(value)}
    for key, value in variables.items():
        yield {"name": key, "value": _with_index(value) if key in _WITH_INDEX else _escape(value)}
    if pool.machine.task_gpus:
        yield {"name": EXPECTED_GPUS, "value": str(pool.machine.task_gpus)}


_WITH_INDEX = ("TF_CONFIG", "CLUSTER_SPEC")


def _with_index(config: str) -> str:
    """Return a variable's JSON with the index of the pod in place of that of the task."""
    marked = json.loads(config)
    marked["task"]["index"] = _INDEX
    return _escape(json.dumps(marked)).replace(f'"{_INDEX}"', f"$({_INDEX})")


def _escape(text: str) -> str:
    """Write a text so that Kubernetes fills in nothing: it reads each ``$$`` as ``$``."""
    return text.replace("$", "$$")
