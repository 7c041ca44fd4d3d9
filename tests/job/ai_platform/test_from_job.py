"""A job in AI Platform's format: the fields, what it cannot express, and the way back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.job import vertex
from distlaunch.job.ai_platform import read
from distlaunch.job.ai_platform.from_job import from_job
from distlaunch.job.ai_platform.to_job import to_job
from distlaunch.job.load import load_job
from distlaunch.job.model import (
    ChoiceParameter,
    Cluster,
    Job,
    Machine,
    Pool,
    Program,
    RangeParameter,
    Scheduling,
    Tuning,
)
from distlaunch.job.yaml_document import Document

IMAGE = "us-docker.pkg.dev/p/r/trainer@sha256:0"
T4 = Machine("n1-standard-8", "NVIDIA_TESLA_T4", 1)


def test_a_cluster_of_the_jobs_own_image():
    job = Job(
        "digits",
        Cluster(Pool(T4), Pool(T4, 3), None, Pool(Machine("n1-standard-4"), 0)),
        args=("--epochs=5",),
        region="us-central1",
        bucket="gs://bucket",
        scheduling=Scheduling(timeout=3600),
    )
    written, notes = from_job(job, IMAGE)
    gpu = {"type": "NVIDIA_TESLA_T4", "count": 1}
    assert written == {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-8",
        "masterConfig": {"imageUri": IMAGE, "acceleratorConfig": gpu},
        "workerType": "n1-standard-8",
        "workerConfig": {"acceleratorConfig": gpu},
        "workerCount": 3,
        "args": ["--epochs=5"],
        "region": "us-central1",
        "jobDir": "gs://bucket/digits",
        "scheduling": {"maxRunningTime": "3600s"},
        "useChiefInTfConfig": True,
    }
    assert notes == ()


def test_what_cannot_be_expressed_is_reported():
    job = Job(
        "digits",
        Cluster(Pool(Machine("g2-standard-8", "NVIDIA_L4", 1))),
        env={"TOKEN": "secret", "A": "1"},
        scheduling=Scheduling("SPOT"),
        labels={"team": "vision"},
        tensorboard="123",
        vertex={
            "jobSpec": {
                "enableWebAccess": False,
                "reservedIpRanges": ["a"],
                "workerPoolSpecs": [
                    {"nfsMounts": [{"path": "/b"}], "diskSpec": {"bootDiskSizeGb": 200}}
                ],
            },
            "encryptionSpec": {"kmsKeyName": "key"},
        },
    )
    written, notes = from_job(job, None)
    assert written == {
        "scaleTier": "CUSTOM",
        "masterType": "g2-standard-8",
        "masterConfig": {"diskConfig": {"bootDiskSizeGb": 200}},
        "enableWebAccess": False,
        "encryptionConfig": {"kmsKeyName": "key"},
        "useChiefInTfConfig": True,
    }
    missing = "left out, as AI Platform's jobs have no such field"
    assert notes == (
        "env: A, TOKEN: left out, as AI Platform sets no variables; set them in the image",
        "masterConfig.imageUri: left out, as the image is not known yet; build it first",
        "masterConfig.acceleratorConfig: NVIDIA_L4 left out, as AI Platform never had it",
        f"jobSpec.reservedIpRanges: {missing}",
        f"jobSpec.workerPoolSpecs[0].nfsMounts: {missing}",
        f"jobSpec.scheduling.strategy: {missing}",
        f"jobSpec.tensorboard: {missing}",
    )


@pytest.mark.parametrize("tuned", [False, True])
def test_of_a_vertex_file_only_unwritten_fields_are_reported(tuned, tmp_path):
    pool = {
        "machineSpec": {
            "machineType": "n1-standard-8",
            "acceleratorType": "NVIDIA_TESLA_T4",
            "acceleratorCount": 1,
        },
        "replicaCount": 1,
        "containerSpec": {"imageUri": IMAGE, "args": ["--epochs=5"]},
        "nfsMounts": [{"server": "a", "path": "/b", "mountPoint": "/mnt/c"}],
    }
    spec = {"workerPoolSpecs": [pool, pool]}
    study = {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [
            {"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 1.0}}
        ],
    }
    search = {"studySpec": study, "maxTrialCount": 4, "parallelTrialCount": 2}
    (tmp_path / "config.json").write_text(
        json.dumps({"displayName": "x", **search, "trialJobSpec": spec} if tuned else spec)
    )
    loaded = load_job(tmp_path, config=tmp_path / "config.json")
    _, notes = from_job(loaded.job, None)
    assert {note.partition(":")[0].rpartition(".")[2] for note in notes} == {"nfsMounts"}


def test_packages_are_installed_into_a_runtime_that_is_named_by_hand():
    program = Program(IMAGE, args=("--a",), module="trainer.task", packages=("gs://b/t.tgz",))
    written, notes = from_job(Job("a", Cluster(Pool(T4, program=program))), None)
    assert written["pythonModule"] == "trainer.task"
    assert written["packageUris"] == ["gs://b/t.tgz"]
    assert written["args"] == ["--a"]
    assert "useChiefInTfConfig" not in written
    assert notes == (
        f"masterConfig.imageUri: {IMAGE} left out, as AI Platform installs packages into its "
        "own runtimes; add runtimeVersion and pythonVersion",
    )


WORDS = st.text("abc-=$é' ", min_size=1, max_size=8)
ARGS = st.lists(WORDS, max_size=3).map(tuple)
MACHINES = st.sampled_from(
    [T4, Machine("n1-standard-4"), Machine("a2-highgpu-2g", "NVIDIA_TESLA_A100", 2)]
)
PROGRAMS = st.builds(Program, image=st.sampled_from([IMAGE, "other:1"]), command=ARGS, args=ARGS)
SPANS = st.builds(
    RangeParameter,
    minimum=st.integers(0, 5),
    maximum=st.integers(6, 9),
    is_integer=st.booleans(),
    scale=st.sampled_from(["linear", "log", "reverse_log"]),
)
NUMBERS = st.lists(st.sampled_from(["1", "2.5", "4"]), min_size=1, unique=True).map(tuple)
TUNINGS = st.builds(
    Tuning,
    metric=WORDS,
    goal=st.sampled_from(["maximize", "minimize"]),
    parameters=st.dictionaries(
        WORDS,
        SPANS
        | st.builds(ChoiceParameter, ARGS.filter(len))
        | st.builds(ChoiceParameter, NUMBERS, is_numeric=st.just(value=True), scale=st.just("log")),
        min_size=1,
    ),
    trials=st.integers(1, 9),
    parallel_trials=st.integers(1, 3),
    algorithm=st.sampled_from(["bayesian", "grid", "random"]),
)


@st.composite
def jobs(draw) -> Job:
    """Return a job that AI Platform's format can express, each pool with its own image."""

    def pool() -> Pool:
        return Pool(draw(MACHINES), draw(st.integers(1, 5)), draw(PROGRAMS))

    tuning = draw(st.none() | TUNINGS)
    spec = {"enableWebAccess": True, "baseOutputDirectory": {"outputUriPrefix": "gs://b/j"}}
    disk = {"workerPoolSpecs": [{}, {"diskSpec": {"bootDiskSizeGb": 200}}]}
    bags = [{}, spec, spec | disk, disk]
    cluster = Cluster(
        replace(pool(), count=1),
        pool(),
        *(pool() if draw(st.booleans()) else None for _ in range(2)),
    )
    bag = draw(st.sampled_from(bags))
    return Job(
        "job",
        cluster,
        region=draw(st.sampled_from([None, "us-central1"])),
        network=draw(st.none() | WORDS),
        service_account=draw(st.none() | WORDS),
        scheduling=Scheduling(timeout=draw(st.none() | st.integers(1, 10**6))),
        tuning=tuning,
        vertex={"trialJobSpec" if tuning else "jobSpec": bag} if bag else {},
    )


@given(job=jobs())
def test_what_is_written_is_translated_back_into_the_same_request(job):
    written, notes = from_job(job, None)
    assert notes == ()
    file = read(Document(json.dumps({"trainingInput": written})), Path("/config.yaml"))
    back, _ = to_job(file, Job("job", Cluster(Pool(T4))), folder=Path("/"))
    assert back.region == job.region
    expected = request(job)
    spec = expected["trialJobSpec" if job.tuning else "jobSpec"]
    if "baseOutputDirectory" in spec:  # which AI Platform passes to the program
        for pool in filter(None, spec["workerPoolSpecs"]):
            container = pool["containerSpec"]
            container["args"] = [*container.get("args", []), "--job-dir", "gs://b/j"]
    assert request(back) == expected


def request(job: Job) -> dict[str, Any]:
    return vertex.plain_request(job, image=None, labels={}, job_dir=None)
