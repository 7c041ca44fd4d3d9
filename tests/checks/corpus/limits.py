"""Jobs that pass a limit of Google's, or that no service of its takes as they are said."""

from __future__ import annotations

from .cases import REGISTRY, Broken, of_config
from .requests import vertex

MACHINE = "replicaCount: 1, machineSpec: {machineType: n1-standard-8}"
KEY = "projects/demo-project/locations/global/keyRings/ring/cryptoKeys/key"


def tuned(parameters: str, trials: str = "trials: 4") -> str:
    """Return a job file's search."""
    return f"tuning: {{metric: loss, goal: minimize, {trials}, parameters: {{{parameters}}}}}"


def study(
    spec: str, counts: str = "maxTrialCount: 4\nparallelTrialCount: 2\n", pool: str = MACHINE
) -> str:
    """Return a file of a tuned job, with an image that is there."""
    container = f"containerSpec: {{imageUri: '{REGISTRY}/python:3.12'}}"
    return (
        f"displayName: digits\n{counts}studySpec: {{metrics: [{{metricId: loss, goal: MINIMIZE}}], "
        f"{spec}}}\ntrialJobSpec: {{workerPoolSpecs: [{{{pool}, {container}}}]}}\n"
    )


LIMITS = {
    "a fifth pool": Broken(
        code="pool-count",
        remedy="use 4 or fewer",
        where="config.yaml:2:1: workerPoolSpecs",
        **of_config(vertex(*[MACHINE] * 5)),
    ),
    "more machines than there are": Broken(
        code="replica-count",
        remedy="use 10,000 or fewer",
        where="config.yaml:3:18: workerPoolSpecs[1].replicaCount",
        **of_config(
            vertex(MACHINE, MACHINE.replace("1", "99999999999", 1)),
        ),
    ),
    "a disk that is too small": Broken(
        code="disk-size",
        remedy="100",
        **of_config(
            vertex(
                "replicaCount: 1, machineSpec: {machineType: n1-standard-8}, "
                "diskSpec: {bootDiskSizeGb: 50}"
            )
        ),
    ),
    "a disk of no type": Broken(
        code="disk-type",
        remedy="pd-ssd",
        **of_config(
            vertex(
                "replicaCount: 1, machineSpec: {machineType: n1-standard-8}, "
                "diskSpec: {bootDiskType: ssd}"
            )
        ),
    ),
    "a name as long as a title": Broken(
        code="name-length",
        remedy="use 128 or fewer",
        where="config.yaml:1:14: displayName",
        **of_config(
            "displayName: " + "x" * 129 + "\njobSpec:\n  workerPoolSpecs:\n  - {replicaCount: 1, "
            f"machineSpec: {{machineType: n1-standard-8}}, containerSpec: "
            f"{{imageUri: '{REGISTRY}/python:3.12'}}}}\n"
        ),
    ),
    "labels without end": Broken(
        code="label-count",
        remedy="use 64 or fewer",
        where="labels",
        job="labels: {" + ", ".join(f"label-{n}: x" for n in range(64)) + "}",
    ),
    "variables without end": Broken(
        code="variable-count",
        remedy="use 100 or fewer",
        where="env",
        job="env: {" + ", ".join(f"V{n}: x" for n in range(101)) + "}",
    ),
    "FLEX_START for longer than a week": Broken(
        code="timeout-too-long",
        remedy="7d",
        where="scheduling.timeout",
        job="""
cluster:
  chief: {machine: a2-highgpu-1g, accelerator: {type: NVIDIA_TESLA_A100, count: 1}}
  workers: {machine: a2-highgpu-1g, accelerator: {type: NVIDIA_TESLA_A100, count: 1}}
scheduling: {strategy: FLEX_START, timeout: 8d}
""",
    ),
    "TensorBoard, and nobody to write to it": Broken(
        code="tensorboard-without-account",
        remedy="service_account",
        where="tensorboard",
        job="tensorboard: projects/123/locations/us-central1/tensorboards/456",
    ),
    "TensorBoard in another region": Broken(
        code="tensorboard-region",
        remedy="us-central1",
        where="tensorboard",
        job="{tensorboard: projects/123/locations/europe-west4/tensorboards/456, "
        "service_account: trainer@demo-project.iam.gserviceaccount.com}",
    ),
    "a network by its short name": Broken(
        code="network-form",
        remedy="gcloud projects describe demo-project",
        where="network",
        job="network: default",
    ),
    "a person to run as": Broken(
        code="account-form",
        remedy="gcloud iam service-accounts list",
        where="service_account",
        job="service_account: me@example.com",
    ),
    "an account by its name alone": Broken(
        code="account-form",
        remedy="gcloud iam service-accounts list",
        where="config.yaml:3:17: serviceAccount",
        **of_config(
            vertex(
                MACHINE,
                more="serviceAccount: trainer\n",
            )
        ),
    ),
    "a key by its name alone": Broken(
        code="key-form",
        remedy="gcloud kms keys list --location=us-central1",
        where="vertex.encryptionSpec.kmsKeyName",
        job="vertex: {encryptionSpec: {kmsKeyName: my-key}}",
    ),
    "a key of all regions": Broken(
        code="key-region",
        remedy="use one in us-central1",
        where="vertex.encryptionSpec.kmsKeyName",
        job=f"vertex: {{encryptionSpec: {{kmsKeyName: {KEY}}}}}",
    ),
    "more trials at once than there are": Broken(
        code="tuning-impossible",
        remedy="parallel_trials: 4 or less",
        where="tuning.parallel_trials",
        job=tuned("batch-size: {values: [32, 64]}", "trials: 4, parallel_trials: 9"),
    ),
    "a search of nobody knows how many trials": Broken(
        code="tuning-impossible",
        remedy="maxTrialCount: 20",
        where="config.yaml: maxTrialCount",
        **of_config(
            study(
                "parameters: [{parameterId: epochs, integerValueSpec: {minValue: 1, maxValue: 9}}]",
                "parallelTrialCount: 2\n",
            )
        ),
    ),
    "a topology of another machine, of trials": Broken(
        code="tpu-topology",
        remedy="vertex: {trialJobSpec: ",
        **of_config(
            study(
                "parameters: [{parameterId: epochs, integerValueSpec: {minValue: 1, maxValue: 9}}]",
                pool="replicaCount: 1, "
                "machineSpec: {machineType: ct5lp-hightpu-4t, tpuTopology: 4x5}",
            )
        ),
    ),
}
