"""A job in AI Platform's format: the fields, what it cannot express, and the way back."""

from __future__ import annotations

import json

from distlaunch.job.ai_platform.from_job import from_job
from distlaunch.job.load import load_job
from distlaunch.job.model import (
    Cluster,
    Job,
    Machine,
    Pool,
    Program,
    Scheduling,
)

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


def test_of_a_vertex_file_only_unwritten_fields_are_reported(tmp_path):
    pool = {
        "machineSpec": {"machineType": "n1-standard-8"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": IMAGE, "args": ["--epochs=5"]},
        "nfsMounts": [{"server": "a", "path": "/b", "mountPoint": "/mnt/c"}],
    }
    study = {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "rate", "integerValueSpec": {"minValue": 1, "maxValue": 2}}],
    }
    search = {"studySpec": study, "trialJobSpec": {"workerPoolSpecs": [pool, pool]}}
    (tmp_path / "config.json").write_text(json.dumps(search))
    loaded = load_job(tmp_path, config=tmp_path / "config.json")
    _, notes = from_job(loaded.job, None)
    fields = {note.partition(":")[0] for note in notes}
    assert fields == {f"trialJobSpec.workerPoolSpecs[{index}].nfsMounts" for index in (0, 1)}


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
