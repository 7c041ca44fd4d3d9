"""AI Platform's jobs on Vertex AI: machines, counts, accelerators, args; and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from .translating import IMAGE, pool, refusals, request, translated


@dataclass
class Shape:
    """A config.yaml, the pools that it becomes, and the fields with a note."""

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
    "BASIC_TPU": Shape(
        "trainingInput: {scaleTier: BASIC_TPU, runtimeVersion: 2.11, pythonVersion: 3.7}",
        [pool("cloud-tpu", gpus=(8, "TPU_V2"))],
        ["scaleTier", "scaleTier", "runtimeVersion", "pythonVersion"],
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
            "2:14: trainingInput.scaleTier: BASIC_GPU was n1-standard-8 with 1 "
            "NVIDIA_TESLA_K80, which Google withdrew on 2024-05-01; choose scaleTier: CUSTOM "
            "and masterType: n1-standard-8 with masterConfig.acceleratorConfig: {type: "
            "NVIDIA_TESLA_T4, count: 1} or NVIDIA_TESLA_V100, an L4 in distlaunch.yaml, or "
            "use --replace-retired",
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
            "count: 8}, an L4 in distlaunch.yaml, or use --replace-retired",
            "4:16: trainingInput.workerType: complex_model_m_p100 was n1-standard-16 with 4 "
            "NVIDIA_TESLA_P100, which Google withdrew on 2026-09-15; choose workerType: "
            "n1-standard-16 with workerConfig.acceleratorConfig: {type: NVIDIA_TESLA_T4, "
            "count: 4} or NVIDIA_TESLA_V100, an L4 in distlaunch.yaml, or use "
            "--replace-retired",
            "9:31: trainingInput.parameterServerConfig.acceleratorConfig.type: Google "
            "withdrew NVIDIA_TESLA_K80 on 2024-05-01; choose NVIDIA_TESLA_V100, an L4 in "
            "distlaunch.yaml, or use --replace-retired",
        ],
    ),
    "machines of a tier": (
        "trainingInput:\n  scaleTier: STANDARD_1\n  masterType: n1-standard-4\n  workerCount: 2\n",
        [
            "3:15: trainingInput.masterType: requires scaleTier: CUSTOM, got STANDARD_1",
            "4:16: trainingInput.workerCount: requires scaleTier: CUSTOM, got STANDARD_1",
        ],
    ),
    "missing machines": (
        "trainingInput:\n  scaleTier: CUSTOM\n  workerCount: 2\n",
        [
            "1:1: trainingInput.masterType: is missing, and scaleTier: CUSTOM needs it; "
            "write one such as n1-standard-8",
            "1:1: trainingInput.workerType: is missing, and workerCount: 2 needs it; write "
            "one such as n1-standard-8",
        ],
    ),
    "a machine that never was": (
        "trainingInput: {scaleTier: CUSTOM, masterType: complex_modell_m}",
        [
            "1:48: trainingInput.masterType: expected a machine type such as n1-standard-8, got "
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
            "5:24: trainingInput.masterConfig.acceleratorConfig: requires a machine type of "
            "Compute Engine; write masterType: n1-standard-4",
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
            "4:44: trainingInput.masterConfig.acceleratorConfig.type: TPU_V2 requires "
            "masterType: cloud_tpu",
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
            "4:15: trainingInput.workerType: Vertex AI takes one TPU machine and no other "
            "machines; leave a single cloud_tpu",
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
            "5:36: trainingInput.masterConfig.containerCommand: requires an imageUri, which "
            "is not set",
            "10:20: trainingInput.workerConfig.containerArgs: conflicts with args; leave one out",
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
            "3:16: trainingInput.packageUris: conflicts with masterConfig.imageUri; leave one out",
            "4:17: trainingInput.pythonModule: conflicts with masterConfig.imageUri; leave one out",
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
            "2:16: trainingInput.packageUris: trainer.task is not in the project folder, and "
            "the images that Google installed packages into no longer exist; pass one with "
            "--image, or submit from the folder with the module",
        ],
    ),
    "packages without a module": (
        "trainingInput: {packageUris: ['gs://bucket/trainer.tar.gz']}",
        [
            "1:1: trainingInput.pythonModule: is missing, and packageUris needs it; write a "
            "module such as trainer.task",
        ],
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
            "8:23: trainingInput.hyperparameters.params.3.parameterName: duplicate name b",
            "9:64: trainingInput.hyperparameters.params.4.categoricalValues: expected one or more "
            "values",
            "10:7: trainingInput.hyperparameters.params.5.discreteValues: expected one or more "
            "values",
            "11:63: trainingInput.hyperparameters.params.6.maxValue: expected minValue, 2, "
            "or more, got 1",
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
def test_an_ambiguous_field_is_refused_with_location_and_choices(tmp_path, name):
    text, lines = REFUSED[name]
    assert refusals(tmp_path, text) == lines
