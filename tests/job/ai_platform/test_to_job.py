"""The other fields of AI Platform's files, and distlaunch.yaml beside them."""

from __future__ import annotations

import pytest

from distlaunch.job import vertex
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

from .translating import IMAGE, pool, refusals, request, translated


def test_a_module_outside_the_folder_is_refused_unless_an_image_runs_it(tmp_path):
    text = "trainingInput: {pythonModule: trainer.task}"
    [line] = refusals(tmp_path, text)
    assert line == (
        f"1:31: trainingInput.pythonModule: trainer.task is not in {tmp_path}; submit from the "
        "folder with it, or pass an image that runs it with --image"
    )
    assert translated(tmp_path, text, image=IMAGE).job.module == "trainer.task"


PACKAGES = """
trainingInput:
  packageUris: ['gs://bucket/trainer.tar.gz', 'gs://bucket/other.whl']
  pythonModule: trainer.task
  args: [--epochs=5]
  runtimeVersion: '2.11'
  jobDir: gs://bucket/job
"""


@pytest.mark.parametrize("file", ["trainer/task.py", "trainer/task/__main__.py"])
def test_a_package_job_whose_module_is_here_is_built_from_here(tmp_path, file):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    result = translated(tmp_path, PACKAGES)
    assert result.job.module == "trainer.task"
    assert vertex.needs_image(result.job)
    args = ["--epochs=5", "--job-dir", "gs://bucket/job"]
    assert request(result.job)["jobSpec"]["workerPoolSpecs"] == [pool("n1-standard-4", args=args)]
    assert result.notes[1] == (
        "packageUris: ignored; trainer.task is in the project folder, and the image is built "
        "from it"
    )
    assert (
        "runtimeVersion: 2.11 is ignored, as Google's runtimes ended with AI Platform; Python and "
        "TensorFlow are those of image.base and image.requirements in distlaunch.yaml"
    ) in result.notes


def test_packages_from_elsewhere_go_into_the_image_that_is_named(tmp_path):
    result = translated(tmp_path, PACKAGES, image=IMAGE)
    [spec] = request(result.job)["jobSpec"]["workerPoolSpecs"]
    assert spec["pythonPackageSpec"] == {
        "executorImageUri": IMAGE,
        "packageUris": ["gs://bucket/trainer.tar.gz", "gs://bucket/other.whl"],
        "pythonModule": "trainer.task",
        "args": ["--epochs=5", "--job-dir", "gs://bucket/job"],
    }
    assert not vertex.needs_image(result.job)


def test_an_image_that_holds_the_module_already_is_not_given_packages(tmp_path):
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").touch()
    result = translated(tmp_path, PACKAGES, image=IMAGE)
    assert result.notes[1] == (
        f"packageUris: ignored; trainer.task is in the project folder, and {IMAGE} is assumed to "
        "have it"
    )
    assert result.job.cluster.chief.program is None


def test_a_note_names_each_replacement(tmp_path):
    text = """
        trainingInput:
          masterType: complex_model_s
          workerType: complex_model_m_v100
          workerCount: 2
          masterConfig: {imageUri: 'eu.gcr.io/p/trainer:1', containerArgs: [--chief]}
        """
    assert translated(tmp_path, text).notes == (
        "scaleTier: not set; using CUSTOM, as masterType is set",
        "imageUri: eu.gcr.io/p/trainer:1 exists only if it was copied to Artifact Registry: "
        "Container "
        "Registry has ended",
        "workerConfig: runs the image's entrypoint: only masterConfig has a containerCommand or "
        "containerArgs",
        "masterType: complex_model_s is now n1-standard-8, as Vertex AI has no n1-highcpu-8",
        "workerType: complex_model_m_v100 is now n1-standard-16 with 4 NVIDIA_TESLA_V100",
        "useChiefInTfConfig: TF_CONFIG now has chief in place of master",
    )


def test_everything_else_of_a_job_finds_its_place(tmp_path):
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
          encryptionConfig: {kmsKeyName: projects/p/locations/us-central1/keyRings/r/cryptoKeys/k}
          scheduling: {maxRunningTime: 7200.5s, maxWaitTime: 3600s, priority: 7}
        """
    result = translated(tmp_path, text)
    assert result.job.region == "europe-west4"
    assert request(result.job) == {
        "displayName": "census_2020",
        "labels": {"team": "vision"},
        "encryptionSpec": {
            "kmsKeyName": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
        },
        "jobSpec": {
            "workerPoolSpecs": [
                pool("n1-standard-4", args=["--job-dir", "gs://bucket/census"]),
            ],
            "scheduling": {"timeout": "7201s"},
            "serviceAccount": "trainer@project.iam.gserviceaccount.com",
            "network": "projects/12345/global/networks/mine",
            "enableWebAccess": True,
            "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/census"},
        },
    }
    assert result.notes == (
        "jobId: Census_2020 is now census_2020, as a job's name is part of paths and labels",
        "jobDir: gs://bucket/census is also passed as --job-dir, as before",
        "scaleTier: BASIC is now chief on n1-standard-4",
        "scheduling.priority: ignored, as Vertex AI has no priorities",
        "scheduling.maxRunningTime: 7200.5s is now 7201s (whole seconds only)",
        "scheduling.maxWaitTime: ignored, as Vertex AI limits the wait only with "
        "scheduling.strategy "
        "FLEX_START",
        "createTime, state: ignored (output-only fields)",
    )


def test_a_wait_is_kept_where_vertex_ai_has_one(tmp_path):
    base = Job("base", Cluster(Pool(Machine("n1-standard-4"))), scheduling=Scheduling("FLEX_START"))
    text = "trainingInput: {scaleTier: BASIC, scheduling: {maxWaitTime: 3600s}}"
    assert translated(tmp_path, text, base=base).job.scheduling == Scheduling(
        "FLEX_START", max_wait=3600
    )


def test_hyperparameters_become_a_search(tmp_path):
    text = """
        trainingInput:
          scaleTier: BASIC
          jobDir: gs://bucket/search
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
            - {parameterName: units, type: DISCRETE, discreteValues: [16, 32.5], scaleType: UNIT_REVERSE_LOG_SCALE}
            - {parameterName: optimizer, type: CATEGORICAL, categoricalValues: [sgd, adam]}
            - {parameterName: plain, type: DOUBLE, minValue: 0, maxValue: 1, scaleType: NONE}
        """  # noqa: E501 - as such files are written
    result = translated(tmp_path, text, name="search")
    assert result.job.tuning == Tuning(
        metric="loss",
        goal="minimize",
        parameters={
            "lr": RangeParameter(1e-4, 0.1, scale="log"),
            "layers": RangeParameter(1, 4, is_integer=True),
            "units": ChoiceParameter(("16", "32.5"), is_numeric=True, scale="reverse_log"),
            "optimizer": ChoiceParameter(("sgd", "adam")),
            "plain": RangeParameter(0, 1),
        },
        trials=30,
        parallel_trials=5,
        algorithm="random",
    )
    body = request(result.job)
    assert (body["maxTrialCount"], body["maxFailedTrialCount"]) == (30, 3)
    assert body["studySpec"]["medianAutomatedStoppingSpec"] == {}
    assert body["trialJobSpec"] == {
        "workerPoolSpecs": [pool("n1-standard-4", args=["--job-dir", "gs://bucket/search"])],
        "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/search"},
    }
    fields = [note.split(": ")[0] for note in result.notes if note.startswith("hyper")]
    assert fields == [
        "hyperparameters.params.4.scaleType",
        "hyperparameters.hyperparameterMetricTag",
        "hyperparameters.enableTrialEarlyStopping",
        "hyperparameters.resumePreviousJobId",
    ]


BASE = Job(
    "base",
    Cluster(Pool(Machine("n1-standard-96"))),
    module="mine.main",
    args=("--from-base",),
    env={"A": "1"},
    project="my-project",
    region="us-east1",
    bucket="gs://base",
    image=Image(repository="host/repository"),
    labels={"team": "base", "kept": "yes"},
    vertex={
        "encryptionSpec": {"kmsKeyName": "base"},
        "jobSpec": {"enableWebAccess": False, "reservedIpRanges": ["a"], "workerPoolSpecs": [{}]},
    },
)


def test_unset_fields_are_those_of_distlaunch_yaml(tmp_path):
    job = translated(tmp_path, "trainingInput: {scaleTier: BASIC}", base=BASE).job
    assert (job.name, job.module, job.args, job.region) == (
        "base",
        "mine.main",
        ("--from-base",),
        "us-east1",
    )
    assert job.cluster == Cluster(Pool(Machine("n1-standard-4")))
    assert job.vertex == {
        "encryptionSpec": {"kmsKeyName": "base"},
        "jobSpec": {"enableWebAccess": False, "reservedIpRanges": ["a"]},
    }


def test_the_file_wins_over_distlaunch_yaml(tmp_path):
    text = """
        jobId: mine
        labels: {team: mine}
        trainingInput:
          scaleTier: BASIC
          args: [--from-file]
          region: us-central1
          enableWebAccess: true
          encryptionConfig: {kmsKeyName: mine}
          hyperparameters:
            params: [{parameterName: a, type: INTEGER, minValue: 1, maxValue: 2}]
        """
    job = translated(tmp_path, text, base=BASE).job
    assert (job.name, job.args, job.region) == ("mine", ("--from-file",), "us-central1")
    assert job.labels == {"team": "mine", "kept": "yes"}
    assert job.vertex == {
        "encryptionSpec": {"kmsKeyName": "mine"},
        "trialJobSpec": {"enableWebAccess": True, "reservedIpRanges": ["a"]},
    }


def test_args_of_distlaunch_yaml_do_not_reach_a_foreign_image(tmp_path):
    text = f"trainingInput: {{scaleTier: BASIC, masterConfig: {{imageUri: '{IMAGE}'}}}}"
    job = translated(tmp_path, text, base=BASE).job
    assert job.cluster.chief.program is not None
    assert job.cluster.chief.program.args == ()


def test_a_search_has_the_defaults_it_had(tmp_path):
    text = """
        trainingInput:
          hyperparameters:
            params: [{parameterName: a, type: INTEGER, minValue: 1, maxValue: 2}]
        """
    tuning = translated(tmp_path, text).job.tuning
    assert tuning == Tuning(
        metric="training/hptuning/metric",
        goal="maximize",
        parameters={"a": RangeParameter(1, 2, is_integer=True)},
        trials=1,
    )
