"""AI Platform's jobs on Vertex AI: what becomes of each field, and distlaunch.yaml beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from distlaunch.job import vertex
from distlaunch.job.ai_platform import read
from distlaunch.job.ai_platform.to_job import to_job
from distlaunch.job.load import LoadedJob
from distlaunch.job.model import (
    ChoiceParameter,
    Cluster,
    Image,
    Job,
    Machine,
    Pool,
    RangeParameter,
    Scheduling,
    Tuning,
)
from distlaunch.job.vertex.proto import validate_request
from distlaunch.job.yaml_document import Document

OWN = "us-docker.pkg.dev/p/r/own:1"
IMAGE = "us-docker.pkg.dev/p/r/trainer:1"
SMALL = Job("job", Cluster(Pool(Machine(""))))


def translated(folder, text: str, base: Job = SMALL, **options: Any) -> LoadedJob:
    file = read(Document(dedent(text)), folder / "config.yaml")
    return LoadedJob(*to_job(file, base, folder=folder, **options))


def request(job: Job) -> dict[str, Any]:
    """Return the request of a job, validated against Google's message."""
    body = vertex.plain_request(job, image=OWN, labels={}, job_dir=None)
    validate_request(vertex.collection(job), body)
    return body


def pool(image: str = OWN, **program: list[str]) -> dict[str, Any]:
    return {
        "machineSpec": {"machineType": CPU},
        "replicaCount": 1,
        "containerSpec": {"imageUri": image, **program},
    }


CPU = "n1-standard-4"
CLUSTERS = yaml.safe_load(Path(__file__).with_name("clusters.yaml").read_text())


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_job_has_the_machines_and_programs_it_had(tmp_path, name):
    expected = CLUSTERS[name]
    result = translated(tmp_path, expected["file"])
    assert request(result.job)["jobSpec"]["workerPoolSpecs"] == expected["pools"]
    assert [note.split(": ")[0] for note in result.notes] == expected["notes"]


PACKAGES = """
trainingInput:
  packageUris: ['gs://bucket/trainer.tar.gz', 'gs://bucket/other.whl']
  pythonModule: trainer.task
  args: [--epochs=5]
  runtimeVersion: '2.11'
  jobDir: gs://bucket/job
"""
ARGS = ["--epochs=5", "--job-dir", "gs://bucket/job"]


@pytest.mark.parametrize("file", ["trainer/task.py", "trainer/task/__main__.py"])
def test_a_package_job_whose_module_is_here_is_built_from_here(tmp_path, file):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    result = translated(tmp_path, PACKAGES)
    assert (result.job.module, vertex.needs_image(result.job)) == ("trainer.task", True)
    assert request(result.job)["jobSpec"]["workerPoolSpecs"] == [pool(args=ARGS)]
    assert result.notes[1] == (
        "packageUris: ignored; trainer.task is in the project folder, and the image is built from "
        "it"
    )
    assert result.notes[-1] == (
        "runtimeVersion: 2.11 is ignored, as Google's runtimes ended with AI Platform; Python and "
        "TensorFlow are those of image.base and image.requirements in distlaunch.yaml"
    )
    assert translated(tmp_path, PACKAGES, image=IMAGE).job.cluster.chief.program is None


def test_packages_from_elsewhere_are_installed_into_the_given_image(tmp_path):
    job = translated(tmp_path, PACKAGES, image=IMAGE).job
    [spec] = request(job)["jobSpec"]["workerPoolSpecs"]
    package = spec["pythonPackageSpec"]
    assert (package["executorImageUri"], package["args"]) == (IMAGE, ARGS)
    assert package["packageUris"] == ["gs://bucket/trainer.tar.gz", "gs://bucket/other.whl"]
    assert not vertex.needs_image(job)
    only_module = translated(tmp_path, "trainingInput: {pythonModule: a.b}", image=IMAGE)
    assert only_module.job.module == "a.b"


def test_a_note_names_each_replacement(tmp_path):
    text = """
        trainingInput:
          masterType: complex_model_s
          workerType: complex_model_m_v100
          workerCount: 2
          masterConfig: {imageUri: 'eu.gcr.io/p/trainer:1', containerArgs: [--chief]}
        """
    assert translated(tmp_path, text).notes[:-1] == (
        "scaleTier: not set; using CUSTOM, as masterType is set",
        "masterType: complex_model_s is now n1-standard-8, as Vertex AI has no n1-highcpu-8",
        "workerType: complex_model_m_v100 is now 2 x n1-standard-16 with 4 NVIDIA_TESLA_V100",
        "imageUri: eu.gcr.io/p/trainer:1 exists only if it was copied to Artifact Registry: "
        "Container Registry has ended",
        "workerConfig: runs the image's entrypoint: only masterConfig has a containerCommand or "
        "containerArgs",
    )


def test_all_other_fields_are_translated_or_noted(tmp_path):
    text = """
        jobId: Census_2020
        labels: {team: vision}
        state: SUCCEEDED
        createTime: '2020-01-01T00:00:00Z'
        trainingInput:
          scaleTier: BASIC
          region: europe-west4
          jobDir: gs://bucket/census
          network: projects/12345/global/networks/mine
          serviceAccount: trainer@project.iam.gserviceaccount.com
          enableWebAccess: true
          encryptionConfig: {kmsKeyName: key}
          scheduling: {maxRunningTime: 7200.5s, maxWaitTime: 3600s, priority: 7}
        """
    result = translated(tmp_path, text)
    assert (result.job.region, result.job.scheduling) == ("europe-west4", Scheduling(timeout=7201))
    assert request(result.job) == {
        "displayName": "census_2020",
        "labels": {"team": "vision"},
        "encryptionSpec": {"kmsKeyName": "key"},
        "jobSpec": {
            "workerPoolSpecs": [pool(args=["--job-dir", "gs://bucket/census"])],
            "scheduling": {"timeout": "7200.5s"},
            "serviceAccount": "trainer@project.iam.gserviceaccount.com",
            "network": "projects/12345/global/networks/mine",
            "enableWebAccess": True,
            "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/census"},
        },
    }
    assert result.notes == (
        "scaleTier: the chief of BASIC is now n1-standard-4",
        "jobDir: gs://bucket/census is also passed as --job-dir, as before",
        "jobId: Census_2020 is now census_2020, as a job's name is part of paths and labels",
        "scheduling.priority: ignored, as Vertex AI has no priorities",
        "createTime, state: ignored (output-only fields)",
        "scheduling.maxWaitTime: ignored, as Vertex AI limits the wait only with "
        "scheduling.strategy FLEX_START",
    )
    waiting = replace(SMALL, scheduling=Scheduling("FLEX_START"))
    assert translated(tmp_path, text, base=waiting).job.scheduling.max_wait == 3600


def test_hyperparameters_become_a_search(tmp_path):
    text = """
        trainingInput:
          hyperparameters:
            goal: MINIMIZE
            hyperparameterMetricTag: loss
            maxTrials: 30
            maxParallelTrials: 5
            maxFailedTrials: 3
            enableTrialEarlyStopping: true
            resumePreviousJobId: before
            algorithm: RANDOM_SEARCH
            params:
            - {parameterName: lr, type: DOUBLE, minValue: 1e-4, maxValue: 0.1, scaleType: UNIT_LOG_SCALE}
            - {parameterName: layers, type: INTEGER, minValue: 1, maxValue: 4}
            - {parameterName: units, type: DISCRETE, discreteValues: [16, 32.5], scaleType: NONE}
            - {parameterName: optimizer, type: CATEGORICAL, categoricalValues: [sgd, adam]}
        """  # noqa: E501 - as such files are written
    result = translated(tmp_path, text)
    parameters = {
        "lr": RangeParameter(1e-4, 0.1, scale="log"),
        "layers": RangeParameter(1, 4, is_integer=True),
        "units": ChoiceParameter(("16", "32.5"), is_numeric=True),
        "optimizer": ChoiceParameter(("sgd", "adam")),
    }
    tuning = Tuning("loss", "minimize", parameters, 30, parallel_trials=5, algorithm="random")
    assert result.job.tuning == tuning
    body = request(result.job)
    assert (body["maxTrialCount"], body["maxFailedTrialCount"]) == (30, 3)
    assert body["studySpec"]["medianAutomatedStoppingSpec"] == {}
    assert [note.split(": ")[0] for note in result.notes if note.startswith("hyper")] == [
        "hyperparameters.resumePreviousJobId",
        "hyperparameters.hyperparameterMetricTag",
        "hyperparameters.enableTrialEarlyStopping",
    ]


SEARCH = "{params: [{parameterName: a, type: INTEGER, minValue: 1, maxValue: 2}]}"


BASE = Job(
    "base",
    Cluster(Pool(Machine("n1-standard-96"))),
    module="mine.main",
    args=("--from-base",),
    region="us-east1",
    image=Image(repository="host/repository"),
    labels={"team": "base", "kept": "yes"},
    vertex={
        "encryptionSpec": {"kmsKeyName": "base"},
        "jobSpec": {"enableWebAccess": False, "reservedIpRanges": ["a"], "workerPoolSpecs": [{}]},
    },
)


def test_unset_fields_are_those_of_distlaunch_yaml(tmp_path):
    job = translated(tmp_path, "trainingInput: {scaleTier: BASIC}", base=BASE).job
    assert (job.module, job.region) == ("mine.main", "us-east1")
    spec = {"workerPoolSpecs": [pool(args=["--from-base"])], "reservedIpRanges": ["a"]}
    assert request(job) == {
        "displayName": "base",
        "labels": {"team": "base", "kept": "yes"},
        "encryptionSpec": {"kmsKeyName": "base"},
        "jobSpec": {**spec, "enableWebAccess": False},
    }
    text = f"trainingInput: {{masterType: {CPU}, masterConfig: {{imageUri: x}}}}"
    job = translated(tmp_path, text, base=BASE).job  # its args do not reach another image
    assert request(job)["jobSpec"]["workerPoolSpecs"] == [pool("x")]


def test_the_file_wins_over_distlaunch_yaml(tmp_path):
    text = f"""
        jobId: mine
        labels: {{team: mine}}
        trainingInput:
          scaleTier: BASIC
          args: [--from-file]
          region: us-central1
          enableWebAccess: true
          encryptionConfig: {{kmsKeyName: mine}}
          hyperparameters: {SEARCH}
        """
    job = translated(tmp_path, text, base=BASE).job
    assert job.region == "us-central1"
    parameters = {"a": RangeParameter(1, 2, is_integer=True)}
    assert job.tuning == Tuning("training/hptuning/metric", "maximize", parameters, trials=1)
    body = request(job)
    assert (body["displayName"], body["labels"]) == ("mine", {"team": "mine", "kept": "yes"})
    assert body["encryptionSpec"] == {"kmsKeyName": "mine"}
    spec = {"workerPoolSpecs": [pool(args=["--from-file"])], "reservedIpRanges": ["a"]}
    assert body["trialJobSpec"] == {**spec, "enableWebAccess": True}
