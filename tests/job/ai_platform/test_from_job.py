"""A job in AI Platform's format: the fields, what it cannot express, and the way back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.job.ai_platform import from_job, read
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
    gpu = {"type": "NVIDIA_TESLA_T4", "count": "1"}
    assert written.dump() == {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-8",
        "masterConfig": {"imageUri": IMAGE, "acceleratorConfig": gpu},
        "workerType": "n1-standard-8",
        "workerConfig": {"acceleratorConfig": gpu},
        "workerCount": "3",
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
        scheduling=Scheduling("SPOT", max_wait=60),
        labels={"team": "vision"},
        tensorboard="123",
        vertex={
            "jobSpec": {
                "enableWebAccess": False,
                "reservedIpRanges": ["a"],
                "workerPoolSpecs": [{"nfsMounts": [], "diskSpec": {"bootDiskSizeGb": 200}}],
            },
            "encryptionSpec": {"kmsKeyName": "key"},
        },
    )
    written, notes = from_job(job, None)
    assert written.dump() == {
        "scaleTier": "CUSTOM",
        "masterType": "g2-standard-8",
        "masterConfig": {"diskConfig": {"bootDiskSizeGb": 200}},
        "enableWebAccess": False,
        "encryptionConfig": {"kmsKeyName": "key"},
        "useChiefInTfConfig": True,
    }
    assert notes == (
        "scheduling.strategy: SPOT left out, as AI Platform had none",
        "scheduling.max_wait: 60s left out; AI Platform waited 1800s or more",
        "masterConfig.acceleratorConfig: NVIDIA_L4 left out, as AI Platform never had it",
        "env: A, TOKEN: left out, as AI Platform sets no variables; set them in the image",
        "tensorboard: left out, as AI Platform had no managed TensorBoard",
        "masterConfig.imageUri: left out, as the image is not known yet; build it first",
        "jobSpec.reservedIpRanges: left out, as AI Platform's jobs have no such field",
        "jobSpec.workerPoolSpecs[0].nfsMounts: left out, as AI Platform's jobs have no such field",
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
    assert written.python_module == "trainer.task"
    assert written.package_uris == ("gs://b/t.tgz",)
    assert written.args == ("--a",)
    assert written.use_chief_in_tf_config is None
    assert notes == (
        f"masterConfig.imageUri: {IMAGE} left out, as AI Platform installs packages into its "
        "own runtimes; add runtimeVersion and pythonVersion",
    )


@pytest.mark.parametrize(("cores", "kind"), [(8, "TPU_V3"), (32, "TPU_V3_POD")])
def test_a_tpu_has_its_old_name(cores, kind):
    written, _ = from_job(Job("a", Cluster(Pool(Machine("cloud-tpu", "TPU_V3", cores)))), IMAGE)
    assert written.master_type == "cloud_tpu"
    assert written.master_config is not None
    assert written.master_config.accelerator_config is not None
    assert written.master_config.accelerator_config.type == kind


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
def test_what_is_written_is_translated_back_into_the_same_job(job):
    written, notes = from_job(job, None)
    assert notes == ()
    text = json.dumps({"trainingInput": written.dump()})
    file = read(Document(text), Path("/config.yaml"))
    back, _ = to_job(file, folder=Path("/"), base=Job("job", Cluster(Pool(T4))))
    assert replace(back, args=()) == with_job_dir(job)


def with_job_dir(job: Job) -> Job:
    """Return a job whose programs are handed its folder, as AI Platform does."""
    spec = job.vertex.get("trialJobSpec" if job.tuning else "jobSpec", {})
    folder = spec.get("baseOutputDirectory", {}).get("outputUriPrefix")
    if not folder:
        return job

    def pool(given: Pool | None) -> Pool | None:
        if given is None or given.program is None:
            return given
        args = (*given.program.args, "--job-dir", folder)
        return replace(given, program=replace(given.program, args=args))

    cluster = job.cluster
    chief = pool(cluster.chief)
    assert chief is not None
    others = (cluster.workers, cluster.parameter_servers, cluster.evaluators)
    return replace(job, cluster=Cluster(chief, *map(pool, others)))
