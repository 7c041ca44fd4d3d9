"""JobSets, against the models of Kubeflow's trainer."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

from distlaunch.job.jobset import build_jobset, jobset_name
from distlaunch.job.model import (
    Cluster,
    Job,
    Kubernetes,
    Machine,
    Pool,
    Program,
    Scheduling,
    StopIf,
)
from distlaunch.render import render_jobset
from distlaunch_trainer.cluster.role import role_from

IMAGE = "us-central1-docker.pkg.dev/my-project/training/digits:latest"
GPU = Machine("n1-standard-8", "NVIDIA_TESLA_T4", 2)
JOB = Job(
    "my_digits",
    Cluster(Pool(GPU), Pool(GPU, 3), Pool(Machine("n1-highmem-8"), 2)),
    args=("--note=$(HOME) costs $5",),
    env={"LOG_LEVEL": "info"},
    labels={"team": "vision"},
    bucket="gs://my-bucket/training",
    scheduling=Scheduling("SPOT"),
    kubernetes=Kubernetes("training", "team-a", "trainer", 5, mount_bucket=True),
)
SMALL = Job("digits", Cluster(Pool(Machine("n1-standard-4"))))
STOPPED = Job("digits", Cluster(Pool(GPU)), stop_if=StopIf(0.1, 3600))


def containers(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    jobs = manifest["spec"]["replicatedJobs"]
    pods = {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}
    return {name: pod["containers"][0] for name, pod in pods.items()}


@pytest.mark.parametrize("job", [JOB, SMALL, STOPPED], ids=["all", "small", "stopped"])
def test_the_models_have_every_field_of_a_manifest(job):
    manifest = build_jobset(job, IMAGE)
    assert missing(manifest, JobsetV1alpha2JobSet.from_dict(manifest).to_dict()) == []
    text = render_jobset(job, IMAGE)
    assert yaml.safe_load(text) == manifest


def test_a_job_that_stop_if_ends_is_not_restarted():
    spec = build_jobset(STOPPED, IMAGE)["spec"]
    (rule,) = spec["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    (rule,) = spec["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [80]
    env = {each["name"]: each.get("value") for each in containers({"spec": spec})["chief"]["env"]}
    assert json.loads(env["DISTLAUNCH_STOP_IF"]) == {"gpu_below": 0.1, "for": 3600}


def missing(value: Any, read: Any, path: str = "") -> list[str]:
    """Return the paths of what the models have changed or left out."""
    if isinstance(value, dict):
        absent = [f"{path}.{key}" for key in value if key not in read]
        present = (key for key in value if key in read)
        return absent + [
            each for key in present for each in missing(value[key], read[key], f"{path}.{key}")
        ]
    if isinstance(value, list):
        pairs = enumerate(zip(value, read, strict=True))
        return [each for at, pair in pairs for each in missing(*pair, f"{path}[{at}]")]
    return [] if value == read else [path]


def test_each_pod_gets_its_place_in_the_cluster():
    for kind, count in {"chief": 1, "worker": 3, "ps": 2}.items():
        for index in range(count):
            environ = expanded(containers(build_jobset(JOB, IMAGE))[kind]["env"], index)
            role = role_from(environ)
            assert role.name == (kind if kind == "chief" else f"{kind}:{index}")
            assert role.addresses[:2] == (
                "my-digits-chief-0-0.my-digits:2222",
                "my-digits-worker-0-0.my-digits:2222",
            )
            assert environ["AIP_MODEL_DIR"] == "gs://my-bucket/training/my_digits/model/"
            assert json.loads(environ["CLUSTER_SPEC"])["task"]["index"] == index


def expanded(variables: list[dict[str, Any]], index: int) -> dict[str, str]:
    """Return variables as Kubernetes sets them: those that stand earlier are filled in."""
    environ: dict[str, str] = {}
    for each in variables:
        text = each["value"] if "value" in each else str(index)
        environ[each["name"]] = expand(text, environ)
    return environ


def expand(text: str, environ: dict[str, str]) -> str:
    """Return a text as Kubernetes' third_party/forked/golang/expansion/expand.go does."""
    return re.sub(
        r"\$(?:\$|\(([^)]*)\))",
        lambda match: "$" if match[1] is None else environ.get(match[1], match[0]),
        text,
    )


PIECES = ["$", "$$", "(", ")", "A", "B", "$(A)", "$$(B)", " "]
TEXTS = st.lists(st.sampled_from(PIECES)).map("".join)


@given(TEXTS, TEXTS, TEXTS)
@example("pa$$word", "$$(A)", "--note=$(A)")
def test_a_value_reaches_the_program_as_it_was_written(first, second, arg):
    program = Program(command=("run", second), args=(arg,), env={"B": second})
    cluster = Cluster(Pool(Machine("n1-standard-4"), program=program))
    job = Job("digits", cluster, env={"A": first}, bucket=f"gs://my-bucket/{first}")
    container = containers(build_jobset(job, IMAGE))["chief"]
    environ = expanded(container["env"], 0)
    assert (environ["A"], environ["B"]) == (first, second)
    assert environ["AIP_MODEL_DIR"] == f"gs://my-bucket/{first}/digits/model/"
    assert [expand(word, environ) for word in container["command"]] == ["run", second]
    assert [expand(word, environ) for word in container["args"]] == [arg]


def test_settings_of_the_job_are_in_the_manifest():
    manifest = build_jobset(JOB, IMAGE)
    assert manifest["metadata"] == {
        "name": "my-digits",
        "namespace": "training",
        "labels": {"team": "vision", "kueue.x-k8s.io/queue-name": "team-a"},
    }
    assert manifest["spec"]["failurePolicy"] == {"maxRestarts": 5}
    chief, server = (containers(manifest)[kind] for kind in ("chief", "ps"))
    assert chief["args"] == ["--note=$$(HOME) costs $$5"]
    assert chief["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert "resources" not in server
    assert chief["volumeMounts"] == [{"name": "bucket", "mountPath": "/gcs/my-bucket"}]
    jobs = manifest["spec"]["replicatedJobs"]
    pods = {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}
    spot = {"cloud.google.com/gke-spot": "true"}
    gpu = {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}
    assert (pods["chief"]["nodeSelector"], pods["ps"]["nodeSelector"]) == (gpu | spot, spot)
    assert pods["chief"]["serviceAccountName"] == "trainer"


def test_a_job_of_one_task_needs_no_cluster():
    names = {each["name"] for each in containers(build_jobset(SMALL, IMAGE))["chief"]["env"]}
    assert "TF_CONFIG" not in names


def test_names_fit_a_host():
    assert jobset_name(Job("a_" + "b" * 61, SMALL.cluster)) == "a-" + "b" * 38
