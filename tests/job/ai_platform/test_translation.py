"""AI Platform's jobs on Vertex AI: machines, counts, accelerators, args; and every line told."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import pytest

from distlaunch.emulator.service.parsing import parse
from distlaunch.emulator.service.rules import custom_job_problems
from distlaunch.emulator.service.tuning_rules import tuning_job_problems
from distlaunch.errors import JobFileError
from distlaunch.google.messages import check
from distlaunch.job import vertex
from distlaunch.job.ai_platform import read
from distlaunch.job.ai_platform.translation import Translation, to_job
from distlaunch.job.model import (
    Choice,
    Cluster,
    Image,
    Job,
    Machine,
    Pool,
    Scheduling,
    Span,
    Tuning,
)
from distlaunch.job.yaml_marks import Document

OWN = "us-docker.pkg.dev/p/r/own:1"
IMAGE = "us-docker.pkg.dev/p/r/trainer:1"


def translated(folder, text: str, **given: Any) -> Translation:
    file = read(Document(dedent(text)), folder / "config.yaml")
    return to_job(file, folder=folder, **given)


def request(job: Job) -> dict[str, Any]:
    """Return what is sent of a job, once Google's own message and the emulator have taken it."""
    body = vertex.request(job, image=OWN, labels={}, job_dir=None)
    where = vertex.collection(job)
    check(where, body)
    rules = custom_job_problems if where == "customJobs" else tuning_job_problems
    assert list(rules(parse(where, body), "us-central1")) == []
    return body


def refusals(folder, text: str, **given: Any) -> list[str]:
    with pytest.raises(JobFileError) as refusal:
        translated(folder, text, **given)
    return [line.removeprefix(f"{folder}/config.yaml:") for line in refusal.value.lines]


def pool(
    machine: str,
    count: int = 1,
    gpus: tuple[int, str] | None = None,
    image: str = OWN,
    *,
    command: list[str] | None = None,
    args: list[str] | None = None,
) -> dict[str, Any]:
    accelerators = {"acceleratorType": gpus[1], "acceleratorCount": gpus[0]} if gpus else {}
    run = {"imageUri": image, "command": command, "args": args}
    return {
        "machineSpec": {"machineType": machine, **accelerators},
        "replicaCount": count,
        "containerSpec": {key: value for key, value in run.items() if value},
    }


@dataclass
class Shape:
    """A config.yaml, the pools that it becomes, and the fields that a note is told of."""

    text: str
    pools: list[dict[str, Any]]
    noted: list[str]


SHAPES = {
    "BASIC": Shape(
        "trainingInput: {scaleTier: BASIC}",
        [pool("n1-standard-4")],
        ["scaleTier"],
    ),
    "no tier": Shape(
        "trainingInput: {region: us-central1, args: [--epochs, 5]}",
        [pool("n1-standard-4", args=["--epochs", "5"])],
        ["scaleTier", "scaleTier"],
    ),
    "STANDARD_1": Shape(
        "trainingInput: {scaleTier: STANDARD_1, args: [--a=1]}",
        [
            pool("n1-standard-8", args=["--a=1"]),
            pool("n1-standard-8", 4, args=["--a=1"]),
            pool("n1-standard-4", 3, args=["--a=1"]),
        ],
        ["scaleTier", "useChiefInTfConfig"],
    ),
    "PREMIUM_1": Shape(
        "trainingInput: {scaleTier: PREMIUM_1, useChiefInTfConfig: true}",
        [pool("n1-highcpu-16"), pool("n1-highcpu-16", 19), pool("n1-highmem-8", 11)],
        ["scaleTier"],
    ),
    "BASIC_TPU": Shape(
        "trainingInput: {scaleTier: BASIC_TPU, runtimeVersion: 2.11, pythonVersion: 3.7}",
        [pool("cloud-tpu", gpus=(8, "TPU_V2"))],
        ["scaleTier", "scaleTier", "runtimeVersion", "pythonVersion"],
    ),
    "BASIC with a container": Shape(
        f"""
        trainingInput:
          scaleTier: BASIC
          masterConfig: {{imageUri: '{IMAGE}'}}
          jobDir: gs://bucket/jobs/1
        """,
        [pool("n1-standard-4", image=IMAGE, args=["--job-dir", "gs://bucket/jobs/1"])],
        ["jobDir", "scaleTier"],
    ),
    "GPUs of today, and chief": Shape(
        f"""
        trainingInput:
          scaleTier: CUSTOM
          masterType: n1-standard-8
          masterConfig: &gpu
            imageUri: '{IMAGE}'
            acceleratorConfig: {{type: NVIDIA_TESLA_T4, count: 1}}
          useChiefInTfConfig: true
          workerType: n1-standard-8
          workerConfig: *gpu
          workerCount: 3
          args: [--epochs=5]
        """,
        [
            pool("n1-standard-8", 1, (1, "NVIDIA_TESLA_T4"), IMAGE, args=["--epochs=5"]),
            pool("n1-standard-8", 3, (1, "NVIDIA_TESLA_T4"), IMAGE, args=["--epochs=5"]),
        ],
        [],
    ),
    "an image that is inherited": Shape(
        f"""
        trainingInput:
          scaleTier: CUSTOM
          masterType: n1-highmem-16
          masterConfig: {{imageUri: '{IMAGE}'}}
          workerType: n1-highcpu-16
          workerCount: '2'
          parameterServerType: n1-highmem-2
          parameterServerCount: 2
          parameterServerConfig: {{imageUri: 'us-docker.pkg.dev/p/r/ps:1'}}
          evaluatorType: n1-standard-4
          evaluatorCount: 1
          evaluatorConfig: {{acceleratorConfig: {{type: NVIDIA_TESLA_P4, count: 2}}}}
        """,
        [
            pool("n1-highmem-16", image=IMAGE),
            pool("n1-highcpu-16", 2, image=IMAGE),
            pool("n1-highmem-2", 2, image="us-docker.pkg.dev/p/r/ps:1"),
            pool("n1-standard-4", 1, (2, "NVIDIA_TESLA_P4"), IMAGE),
        ],
        ["useChiefInTfConfig"],
    ),
    "a command and args of each": Shape(
        f"""
        trainingInput:
          scaleTier: CUSTOM
          masterType: n1-standard-4
          masterConfig:
            imageUri: '{IMAGE}'
            containerCommand: [python, -m, trainer]
            containerArgs: ['--role=chief']
          workerType: n1-standard-4
          workerCount: 1
          workerConfig: {{containerArgs: ['--role=worker']}}
          evaluatorType: n1-standard-4
          evaluatorCount: 1
          useChiefInTfConfig: yes
        """,
        [
            pool(
                "n1-standard-4",
                image=IMAGE,
                command=["python", "-m", "trainer"],
                args=["--role=chief"],
            ),
            pool("n1-standard-4", 1, None, IMAGE, args=["--role=worker"]),
            {},
            pool("n1-standard-4", 1, None, IMAGE),
        ],
        ["evaluatorConfig"],
    ),
    "legacy machines": Shape(
        """
        trainingInput:
          scaleTier: CUSTOM
          masterType: complex_model_m
          workerType: complex_model_s
          parameterServerType: large_model
          evaluatorType: complex_model_l
          workerCount: 9
          parameterServerCount: 3
          evaluatorCount: 1
        """,
        [
            pool("n1-highcpu-16"),
            pool("n1-standard-8", 9),
            pool("n1-highmem-8", 3),
            pool("n1-highcpu-32"),
        ],
        ["masterType", "workerType", "parameterServerType", "evaluatorType", "useChiefInTfConfig"],
    ),
    "legacy machines with V100s": Shape(
        """
        training_input:
          scale_tier: CUSTOM
          master_type: complex_model_l_v100
          worker_type: complex_model_m_v100
          worker_count: 2
          parameter_server_type: large_model_v100
          parameter_server_count: 1
          evaluator_type: standard_v100
          evaluator_count: 1
          use_chief_in_tf_config: true
        """,
        [
            pool("n1-standard-32", 1, (8, "NVIDIA_TESLA_V100")),
            pool("n1-standard-16", 2, (4, "NVIDIA_TESLA_V100")),
            pool("n1-highmem-8", 1, (1, "NVIDIA_TESLA_V100")),
            pool("n1-standard-8", 1, (1, "NVIDIA_TESLA_V100")),
        ],
        ["masterType", "workerType", "parameterServerType", "evaluatorType"],
    ),
    "a tier that was given on the command line": Shape(
        "trainingInput: {masterType: standard, workerType: standard}",
        [pool("n1-standard-4")],
        ["scaleTier", "workerType", "masterType"],
    ),
    "a TPU behind a master": Shape(
        """
        jobId: tpu_test_3
        labels: {type: prod, owner: me}
        trainingInput:
          scaleTier: CUSTOM
          masterType: n1-highcpu-16
          masterConfig:
            imageUri: gcr.io/project/mnist:tpu
          workerType: cloud_tpu
          workerCount: 1
          workerConfig:
            acceleratorConfig:
              type: TPU_V3
              count: 8
            tpuTfVersion: "1.15"
        """,
        [pool("cloud-tpu", 1, (8, "TPU_V3"), "gcr.io/project/mnist:tpu")],
        ["workerType", "imageUri", "workerType", "tpuTfVersion"],
    ),
    "a pod of TPUs": Shape(
        """
        trainingInput:
          scaleTier: CUSTOM
          masterType: cloud_tpu
          masterConfig: {acceleratorConfig: {type: TPU_V2_POD, count: 128}}
        """,
        [pool("cloud-tpu", 1, (128, "TPU_V2"))],
        ["masterType", "masterType"],
    ),
    "disks": Shape(
        """
        trainingInput:
          scaleTier: CUSTOM
          masterType: n1-standard-4
          evaluatorType: n1-standard-4
          evaluatorCount: 1
          evaluatorConfig: {diskConfig: {bootDiskType: pd-standard, bootDiskSizeGb: 200}}
        """,
        [
            pool("n1-standard-4"),
            {},
            {},
            pool("n1-standard-4")
            | {"diskSpec": {"bootDiskType": "pd-standard", "bootDiskSizeGb": 200}},
        ],
        ["useChiefInTfConfig"],
    ),
    "JSON": Shape(
        '{"trainingInput": {"scaleTier": "CUSTOM", "masterType": "a2-highgpu-1g",\n'
        ' "masterConfig": {"acceleratorConfig": {"count": "1", "type": "NVIDIA_TESLA_A100"}},\n'
        ' "args": ["--name", "\\u00e9t\\u00e9 \\"x\\""]}}',
        [pool("a2-highgpu-1g", 1, (1, "NVIDIA_TESLA_A100"), args=["--name", 'été "x"'])],
        [],
    ),
    "no accelerator": Shape(
        """
        trainingInput:
          scaleTier: CUSTOM
          masterType: n1-standard-4
          masterConfig: {acceleratorConfig: {type: ACCELERATOR_TYPE_UNSPECIFIED, count: 2}}
        """,
        [pool("n1-standard-4")],
        [],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_job_has_the_machines_and_programs_it_had(tmp_path, name):
    shape = SHAPES[name]
    result = translated(tmp_path, shape.text, name="job")
    body = request(result.job)
    assert body["jobSpec"]["workerPoolSpecs"] == shape.pools
    assert [note.split(": ")[0] for note in result.notes] == shape.noted


REFUSED = {
    "BASIC_GPU": (
        "trainingInput:\n  scaleTier: BASIC_GPU\n",
        [
            "2:14: trainingInput.scaleTier: BASIC_GPU was n1-standard-8 with 1 NVIDIA_TESLA_K80, "
            "which Google withdrew on 2024-05-01; choose scaleTier: CUSTOM and masterType: "
            "n1-standard-8 with masterConfig.acceleratorConfig: {type: NVIDIA_TESLA_T4, count: 1} "
            "or NVIDIA_TESLA_V100, or an L4 in distlaunch.yaml"
        ],
    ),
    "machines with K80s and P100s": (
        """\
        trainingInput:
          scaleTier: CUSTOM
          masterType: complex_model_l_gpu
          worker_type: complex_model_m_p100
          worker_count: 2
          parameterServerType: n1-standard-16
          parameterServerCount: 1
          parameterServerConfig:
            acceleratorConfig: {type: NVIDIA_TESLA_K80, count: 8}
        """,
        [
            "3:15: trainingInput.masterType: complex_model_l_gpu was n1-standard-32 with 8 "
            "NVIDIA_TESLA_K80, which Google withdrew on 2024-05-01; choose masterType: "
            "n1-standard-32 with masterConfig.acceleratorConfig: {type: NVIDIA_TESLA_V100, "
            "count: 8}, or an L4 in distlaunch.yaml",
            "4:16: trainingInput.workerType: complex_model_m_p100 was n1-standard-16 with 4 "
            "NVIDIA_TESLA_P100, which Google withdrew on 2026-09-15; choose workerType: "
            "n1-standard-16 with workerConfig.acceleratorConfig: {type: NVIDIA_TESLA_T4, "
            "count: 4} or NVIDIA_TESLA_V100, or an L4 in distlaunch.yaml",
            "9:31: trainingInput.parameterServerConfig.acceleratorConfig.type: Google withdrew "
            "NVIDIA_TESLA_K80 on 2024-05-01; choose NVIDIA_TESLA_V100, or an L4 in distlaunch.yaml",
        ],
    ),
    "machines of a tier": (
        "trainingInput:\n  scaleTier: STANDARD_1\n  masterType: n1-standard-4\n  workerCount: 2\n",
        [
            "3:15: trainingInput.masterType: goes with scaleTier: CUSTOM, and not with STANDARD_1",
            "4:16: trainingInput.workerCount: goes with scaleTier: CUSTOM, and not with STANDARD_1",
        ],
    ),
    "machines that are not said": (
        "trainingInput:\n  scaleTier: CUSTOM\n  workerCount: 2\n",
        [
            "1:1: trainingInput.masterType: is missing, and scaleTier: CUSTOM needs it; write one, "
            "as n1-standard-8",
            "1:1: trainingInput.workerType: is missing, and workerCount: 2 needs it; write one, "
            "as n1-standard-8",
        ],
    ),
    "a machine that never was": (
        "trainingInput: {scaleTier: CUSTOM, masterType: complex_modell_m}",
        [
            "1:48: trainingInput.masterType: expected a machine type, as n1-standard-8, got "
            "'complex_modell_m'; did you mean 'complex_model_m'?"
        ],
    ),
    "an accelerator beside a legacy machine": (
        """\
        trainingInput:
          scaleTier: CUSTOM
          masterType: standard
          masterConfig:
            acceleratorConfig: {type: NVIDIA_TESLA_T4, count: 1}
        """,
        [
            "5:24: trainingInput.masterConfig.acceleratorConfig: goes with a machine type of "
            "Compute Engine; write masterType: n1-standard-4"
        ],
    ),
    "an accelerator without its number": (
        """\
        trainingInput:
          scaleTier: CUSTOM
          masterType: n1-standard-4
          masterConfig: {acceleratorConfig: {type: NVIDIA_TESLA_T4}}
        """,
        [
            "4:18: trainingInput.masterConfig.acceleratorConfig.count: expected 1 or more of "
            "NVIDIA_TESLA_T4"
        ],
    ),
    "TPUs in the wrong place": (
        """\
        trainingInput:
          scaleTier: CUSTOM
          masterType: n1-standard-4
          masterConfig: {acceleratorConfig: {type: TPU_V2, count: 8}}
        """,
        [
            "4:44: trainingInput.masterConfig.acceleratorConfig.type: TPU_V2 goes with masterType: "
            "cloud_tpu"
        ],
    ),
    "a TPU that is gone": (
        """\
        trainingInput:
          scaleTier: CUSTOM
          masterType: cloud_tpu
          masterConfig: {acceleratorConfig: {type: TPU_V4_POD, count: 32}}
        """,
        [
            "4:44: trainingInput.masterConfig.acceleratorConfig.type: Vertex AI has no TPU_V4_POD "
            "for training; choose TPU_V2 or TPU_V3, or a newer TPU in distlaunch.yaml"
        ],
    ),
    "a TPU without its cores": (
        """\
        trainingInput:
          scaleTier: CUSTOM
          masterType: cloud_tpu
          masterConfig: {acceleratorConfig: {type: TPU_V2}}
        """,
        [
            "4:18: trainingInput.masterConfig.acceleratorConfig.count: expected the number of "
            "TPU_V2's cores, as 8"
        ],
    ),
    "more than one TPU": (
        """\
        trainingInput:
          scaleTier: CUSTOM
          masterType: standard
          workerType: cloud_tpu
          workerCount: 2
        """,
        [
            "4:15: trainingInput.workerType: Vertex AI takes one TPU machine with nothing beside "
            "it; leave a single cloud_tpu"
        ],
    ),
    "a parameter server beside a TPU": (
        """\
        trainingInput:
          scaleTier: CUSTOM
          masterType: cloud_tpu
          parameterServerType: standard
          parameterServerCount: 1
        """,
        [
            "3:15: trainingInput.masterType: Vertex AI takes one TPU machine with nothing beside "
            "it; leave a single cloud_tpu"
        ],
    ),
    "commands without an image, and with args": (
        """\
        trainingInput:
          scaleTier: CUSTOM
          args: [--a]
          masterType: n1-standard-4
          masterConfig: {containerCommand: [run]}
          workerType: n1-standard-4
          workerCount: 1
          workerConfig:
            imageUri: image
            containerArgs: []
        """,
        [
            "5:36: trainingInput.masterConfig.containerCommand: goes with an imageUri, and there "
            "is none",
            "10:20: trainingInput.workerConfig.containerArgs: goes without args, and there are "
            "both",
        ],
    ),
    "packages beside an image": (
        """\
        trainingInput:
          masterConfig: {imageUri: image}
          packageUris: ['gs://bucket/trainer.tar.gz']
          pythonModule: trainer.task
        """,
        [
            "3:16: trainingInput.packageUris: goes without masterConfig.imageUri; leave one out, "
            "as the image runs its own",
            "4:17: trainingInput.pythonModule: goes without masterConfig.imageUri; leave one out, "
            "as the image runs its own",
        ],
    ),
    "packages without an image to go into": (
        """\
        trainingInput:
          packageUris: ['gs://bucket/trainer.tar.gz']
          pythonModule: trainer.task
          runtimeVersion: '2.11'
        """,
        [
            "2:16: trainingInput.packageUris: trainer.task is not in the project's folder, and the "
            "images that Google installed packages into are gone; name one with --image, or "
            "submit from the module's folder"
        ],
    ),
    "packages without a module": (
        "trainingInput: {packageUris: ['gs://bucket/trainer.tar.gz']}",
        [
            "1:1: trainingInput.pythonModule: is missing, and packageUris needs it; write one, as "
            "trainer.task"
        ],
    ),
    "a job folder that is none": (
        "trainingInput: {jobDir: /tmp/job}",
        ["1:25: trainingInput.jobDir: expected gs://BUCKET/FOLDER, got '/tmp/job'"],
    ),
    "hyperparameters": (
        """\
        trainingInput:
          hyperparameters:
            goal: MAXIMIZE
            params:
            - {type: DOUBLE, minValue: 0, maxValue: 1}
            - {parameterName: a, minValue: 0, maxValue: 1}
            - {parameterName: b, type: INTEGER, minValue: 1.5}
            - {parameterName: b, type: DOUBLE, minValue: 0, maxValue: 1}
            - {parameterName: c, type: CATEGORICAL, categoricalValues: []}
            - {parameterName: d, type: DISCRETE}
            - {parameterName: e, type: DOUBLE, minValue: 2, maxValue: 1}
            - {parameterName: f, type: PARAMETER_TYPE_UNSPECIFIED}
        """,
        [
            "5:7: trainingInput.hyperparameters.params.0.parameterName: is missing",
            "6:7: trainingInput.hyperparameters.params.1.type: is missing; expected DOUBLE, "
            "INTEGER, CATEGORICAL or DISCRETE",
            "7:7: trainingInput.hyperparameters.params.2.maxValue: is missing, and type INTEGER "
            "needs it",
            "7:51: trainingInput.hyperparameters.params.2.minValue: expected a whole number for "
            "type INTEGER, got 1.5",
            "8:23: trainingInput.hyperparameters.params.3.parameterName: b is there twice",
            "9:64: trainingInput.hyperparameters.params.4.categoricalValues: expected one or more "
            "values",
            "10:7: trainingInput.hyperparameters.params.5.discreteValues: expected one or more "
            "values",
            "11:63: trainingInput.hyperparameters.params.6.maxValue: expected more than minValue, "
            "2, got 1",
            "12:32: trainingInput.hyperparameters.params.7.type: expected DOUBLE, INTEGER, "
            "CATEGORICAL or DISCRETE",
        ],
    ),
    "nothing to search": (
        "trainingInput: {hyperparameters: {goal: MAXIMIZE}}",
        ["1:17: trainingInput.hyperparameters.params: expected one or more"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_leaves_a_choice_is_refused_with_place_and_remedy(tmp_path, name):
    text, lines = REFUSED[name]
    assert refusals(tmp_path, text) == lines


def test_a_module_outside_the_folder_is_refused_unless_an_image_runs_it(tmp_path):
    text = "trainingInput: {pythonModule: trainer.task}"
    [line] = refusals(tmp_path, text)
    assert line == (
        f"1:31: trainingInput.pythonModule: trainer.task is not in {tmp_path}; submit from the "
        "folder it lies in, or name an image that runs it with --image"
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
        "packageUris: dropped; trainer.task lies in the project's folder, and the image is built "
        "from there"
    )
    assert (
        "runtimeVersion: 2.11 is dropped, as Google's runtimes ended with AI Platform; Python and "
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
        f"packageUris: dropped; trainer.task lies in the project's folder, and {IMAGE} is taken "
        "to hold it"
    )
    assert result.job.cluster.chief.program is None


def test_a_note_says_what_there_is_in_place_of_what_there_was(tmp_path):
    text = """
        trainingInput:
          masterType: complex_model_s
          workerType: complex_model_m_v100
          workerCount: 2
          masterConfig: {imageUri: 'eu.gcr.io/p/trainer:1', containerArgs: [--chief]}
        """
    assert translated(tmp_path, text).notes == (
        "scaleTier: is not set; taken for CUSTOM, as masterType is",
        "imageUri: eu.gcr.io/p/trainer:1 is there only if it was copied to Artifact Registry, as "
        "Container Registry ended",
        "workerConfig: the image runs what it says itself, as only masterConfig has a "
        "containerCommand or containerArgs",
        "masterType: complex_model_s is n1-standard-8 today, as Vertex AI has no n1-highcpu-8",
        "workerType: complex_model_m_v100 is n1-standard-16 with 4 NVIDIA_TESLA_V100 today",
        "useChiefInTfConfig: TF_CONFIG says chief where it said master before",
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
        "jobId: Census_2020 is census_2020, as a job's name is a part of paths and labels",
        "jobDir: gs://bucket/census is also handed over as --job-dir, as before",
        "scaleTier: BASIC is 1 chief on n1-standard-4 today",
        "scheduling.priority: dropped, as Vertex AI has no priorities",
        "scheduling.maxRunningTime: 7200.5s is 7201s, rounded up to whole seconds",
        "scheduling.maxWaitTime: dropped, as Vertex AI ends a wait only with scheduling.strategy "
        "FLEX_START",
        "createTime, state: dropped, as the service told it of a job that is over",
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
            "lr": Span(1e-4, 0.1, scale="log"),
            "layers": Span(1, 4, whole=True),
            "units": Choice(("16", "32.5"), numeric=True, scale="reverse_log"),
            "optimizer": Choice(("sgd", "adam")),
            "plain": Span(0, 1),
        },
        trials=30,
        parallel_trials=5,
        algorithm="random",
    )
    assert request(result.job) == {
        "displayName": "search",
        "maxTrialCount": 30,
        "parallelTrialCount": 5,
        "maxFailedTrialCount": 3,
        "studySpec": {
            "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
            "algorithm": "RANDOM_SEARCH",
            "medianAutomatedStoppingSpec": {},
            "parameters": [
                {
                    "parameterId": "lr",
                    "doubleValueSpec": {"minValue": 1e-4, "maxValue": 0.1},
                    "scaleType": "UNIT_LOG_SCALE",
                },
                {
                    "parameterId": "layers",
                    "integerValueSpec": {"minValue": 1, "maxValue": 4},
                    "scaleType": "UNIT_LINEAR_SCALE",
                },
                {
                    "parameterId": "units",
                    "discreteValueSpec": {"values": [16.0, 32.5]},
                    "scaleType": "UNIT_REVERSE_LOG_SCALE",
                },
                {
                    "parameterId": "optimizer",
                    "categoricalValueSpec": {"values": ["sgd", "adam"]},
                },
                {
                    "parameterId": "plain",
                    "doubleValueSpec": {"minValue": 0.0, "maxValue": 1.0},
                    "scaleType": "UNIT_LINEAR_SCALE",
                },
            ],
        },
        "trialJobSpec": {
            "workerPoolSpecs": [pool("n1-standard-4", args=["--job-dir", "gs://bucket/search"])],
            "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/search"},
        },
    }
    fields = [note.split(": ")[0] for note in result.notes if note.startswith("hyper")]
    assert fields == [
        "hyperparameters.params.4.scaleType",
        "hyperparameters.hyperparameterMetricTag",
        "hyperparameters.enableTrialEarlyStopping",
        "hyperparameters.resumePreviousJobId",
    ]


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
        parameters={"a": Span(1, 2, whole=True)},
        trials=1,
    )


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


def test_what_the_file_does_not_say_is_as_distlaunch_yaml_says(tmp_path):
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


def test_what_the_file_says_wins_over_distlaunch_yaml(tmp_path):
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
    assert translated(tmp_path, text, base=BASE, name="named").job.name == "named"


def test_args_of_distlaunch_yaml_do_not_reach_a_foreign_image(tmp_path):
    text = f"trainingInput: {{scaleTier: BASIC, masterConfig: {{imageUri: '{IMAGE}'}}}}"
    job = translated(tmp_path, text, base=BASE).job
    assert job.cluster.chief.program is not None
    assert job.cluster.chief.program.args == ()


@pytest.mark.parametrize(
    ("folder", "name"),
    [("digits", "digits"), ("My Model (2)", "my_model_2"), ("2020", "job_2020")],
)
def test_a_job_without_a_name_is_called_after_its_folder(tmp_path, folder, name):
    (tmp_path / folder).mkdir()
    assert translated(tmp_path / folder, "trainingInput: {scaleTier: BASIC}").job.name == name
