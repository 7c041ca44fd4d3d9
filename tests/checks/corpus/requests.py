"""Jobs that ask for what is not to be had."""

from __future__ import annotations

from .cases import REGISTRY, WITH_GPUS, Broken, of_config


def vertex(*pools: str, more: str = "") -> str:
    """Return a file as gcloud's --config takes it, with an image that is there."""
    container = f"containerSpec: {{imageUri: '{REGISTRY}/python:3.12'}}"
    lines = "".join(f"- {{{pool}, {container}}}\n" for pool in pools)
    return f"workerPoolSpecs:\n{lines}{more}"


ESSENTIALS = {
    "no project anywhere": Broken(
        code="no-project", remedy="gcloud config set project", job="project: null"
    ),
    "no region anywhere": Broken(code="no-region", remedy="us-central1", job="region: null"),
    "no place for the image": Broken(
        code="no-image", remedy="image.repository", job="image: {repository: null}"
    ),
    "no place for the output": Broken(code="no-job-dir", remedy="gs://", job="bucket: null"),
    "the project that init wrote": Broken(
        code="placeholder-project",
        remedy="gcloud config get project",
        where="project",
        job="project: my-project",
    ),
    "the bucket that init wrote": Broken(
        code="placeholder-bucket",
        remedy="gcloud storage buckets list",
        where="bucket",
        job="bucket: gs://my-bucket",
    ),
    "the repository that init wrote": Broken(
        code="placeholder-repository",
        remedy="gcloud artifacts repositories list",
        where="image.repository",
        job="image: {repository: us-central1-docker.pkg.dev/my-project/training/digits}",
    ),
    "output in the bucket that init wrote": Broken(
        code="placeholder-bucket",
        remedy="gcloud storage buckets list",
        where="--job-dir",
        words=("--job-dir", "gs://my-bucket/digits/first"),
    ),
    "an account of the project that init wrote": Broken(
        code="placeholder-project",
        remedy="gcloud iam service-accounts list",
        where="service_account",
        job="service_account: trainer@my-project.iam.gserviceaccount.com",
    ),
    "an image of the project that init wrote": Broken(
        code="placeholder-repository",
        remedy="--image URI",
        where="image.uri",
        job="image: {uri: 'us-central1-docker.pkg.dev/my-project/training/digits:1'}",
    ),
    "an image with parts to fill in": Broken(
        code="image-name",
        remedy="the name of an image that exists",
        where="config.yaml:2:90: workerPoolSpecs[0].containerSpec.imageUri",
        **of_config(
            "workerPoolSpecs:\n- {replicaCount: 1, machineSpec: {machineType: n1-standard-8}, "
            "containerSpec: {imageUri: '<region>-docker.pkg.dev/PROJECT/training/digits:1'}}\n"
        ),
    ),
    "a repository, and no name in it": Broken(
        code="repository-form",
        remedy="us-central1-docker.pkg.dev/demo-project/training/NAME",
        where="image.repository",
        job="image: {repository: us-central1-docker.pkg.dev/demo-project/training}",
    ),
    "a repository of Container Registry": Broken(
        code="repository-retired",
        severity="warning",
        remedy="us-central1-docker.pkg.dev/demo-project/REPOSITORY/digits",
        where="image.repository",
        job="image: {repository: eu.gcr.io/demo-project/digits}",
    ),
    "a GPU by its short name": Broken(
        code="accelerator-unknown",
        severity="warning",
        remedy="NVIDIA_TESLA_T4",
        where="cluster.chief.accelerator",
        job="cluster: {chief: {accelerator: {type: T4}}, workers: null}",
    ),
    "more trials than Google can count": Broken(
        code="request-invalid",
        remedy="",
        where="maxTrialCount",
        job="tuning: {metric: loss, goal: minimize, trials: 99999999999, "
        "parameters: {learning-rate: {type: double, min: 0.001, max: 0.1}}}",
    ),
    "a key among the data": Broken(
        code="image-refused",
        remedy=".dockerignore",
        where="data/account.json",
        files={
            "data/account.json": '{"type": "service_account", "private_key": "'
            f'-----BEGIN PRIVATE KEY-----{"MIIE" * 20}"}}\n'
        },
    ),
}

MACHINES = {
    "a machine of no family": Broken(
        code="machine-unknown",
        severity="warning",
        remedy="did you mean 'n1-standard-",
        where="cluster.workers.machine",
        job="cluster: {workers: {machine: n1-standard-5}}",
    ),
    "a machine of AI Platform's": Broken(
        code="machine-retired",
        remedy="n1-standard-4",
        where="cluster.chief.machine",
        job="cluster: {chief: {machine: standard}}",
    ),
    "a machine of AI Platform's with its GPUs": Broken(
        code="machine-retired",
        remedy="NVIDIA_TESLA_T4",
        where="cluster.chief.machine",
        job="cluster: {chief: {machine: complex_model_m_gpu}}",
    ),
    "a GPU that never was": Broken(
        code="accelerator-unknown",
        severity="warning",
        remedy="NVIDIA_TESLA_T4",
        where="cluster.chief.accelerator",
        job="cluster: {chief: {accelerator: {type: NVIDIA_TESLA_T5, count: 1}}, workers: null}",
    ),
    "a K80, withdrawn": Broken(
        code="accelerator-retired",
        remedy="NVIDIA_TESLA_T4",
        where="cluster.chief.accelerator",
        job="cluster: {chief: {accelerator: {type: NVIDIA_TESLA_K80, count: 1}}, workers: null}",
    ),
    "a P100, withdrawn": Broken(
        code="accelerator-retired",
        remedy="NVIDIA_TESLA_T4",
        where="cluster.chief.accelerator",
        job="cluster: {chief: {accelerator: {type: NVIDIA_TESLA_P100, count: 1}}, workers: null}",
    ),
    "a GPU that ends soon": Broken(
        code="accelerator-ending",
        severity="warning",
        remedy="NVIDIA_L4",
        where="accelerator.type",
        job=WITH_GPUS,
        files={
            "distlaunch.catalogue.yaml": "retired:\n  accelerators:\n    NVIDIA_TESLA_T4: "
            "{since: 2999-01-01, instead: [NVIDIA_L4]}\n"
        },
    ),
    "an L4 on a machine of another family": Broken(
        code="accelerator-not-on-machine",
        remedy="g2-standard",
        where="cluster.chief.accelerator",
        job="cluster: {chief: {accelerator: {type: NVIDIA_L4, count: 1}}, workers: null}",
    ),
    "a GPU on a machine that takes none": Broken(
        code="accelerator-not-on-machine",
        remedy="n1-",
        where="cluster.chief.accelerator",
        job="cluster: {workers: null, "
        "chief: {machine: e2-standard-4, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}}",
    ),
    "three GPUs": Broken(
        code="accelerator-count",
        remedy="4",
        where="cluster.chief.accelerator.count",
        job="cluster: {chief: {accelerator: {type: NVIDIA_TESLA_T4, count: 3}}, workers: null}",
    ),
    "too few GPUs for so large a machine": Broken(
        code="accelerator-count",
        remedy="2",
        where="cluster.chief.accelerator.count",
        job="cluster: {workers: null, chief: {machine: n1-standard-32, "
        "accelerator: {type: NVIDIA_TESLA_T4, count: 1}}}",
    ),
    "a machine whose GPU is not asked for": Broken(
        code="accelerator-missing",
        remedy="NVIDIA_TESLA_A100",
        where="cluster.chief",
        job="cluster: {chief: {machine: a2-highgpu-1g}}",
    ),
    "a region with a slip of the pen": Broken(
        code="region-unknown",
        severity="warning",
        remedy="us-central1",
        where="region",
        job="region: us-central7",
    ),
    "a GPU that the region has not": Broken(
        code="accelerator-not-in-region",
        remedy="us-central1",
        job="{region: europe-west2, "
        "cluster: {chief: {accelerator: {type: NVIDIA_TESLA_V100}}, workers: null}}",
    ),
    "a GPU that the region has for predictions only": Broken(
        code="accelerator-not-in-region",
        remedy="us-central1",
        job="{region: europe-west1, cluster: {workers: null, "
        "chief: {machine: g2-standard-8, accelerator: {type: NVIDIA_L4}}}}",
    ),
    "a GPU in a region of which nothing is known": Broken(
        code="accelerator-in-region-unknown",
        severity="warning",
        remedy="",
        job="{region: africa-south1, "
        "cluster: {chief: {accelerator: {type: NVIDIA_TESLA_T4}}, workers: null}}",
    ),
    "FLEX_START without a GPU": Broken(
        code="flex-start-accelerator",
        remedy="NVIDIA_L4",
        job="scheduling: {strategy: FLEX_START}",
    ),
    "FLEX_START with a T4": Broken(
        code="flex-start-accelerator",
        remedy="NVIDIA_L4",
        job=f"{WITH_GPUS}scheduling: {{strategy: FLEX_START}}",
    ),
    "FLEX_START with two kinds of machines": Broken(
        code="flex-start-machines",
        remedy="a2-highgpu-1g",
        job="""
cluster:
  chief: {machine: a2-highgpu-1g, accelerator: {type: NVIDIA_TESLA_A100, count: 1}}
  workers: {machine: a2-highgpu-2g, accelerator: {type: NVIDIA_TESLA_A100, count: 2}, count: 1}
scheduling: {strategy: FLEX_START}
""",
        also=frozenset({"accelerators-unequal"}),
    ),
    "a wait that nobody keeps": Broken(
        code="max-wait-ignored",
        severity="warning",
        remedy="FLEX_START",
        where="scheduling.max_wait",
        job="scheduling: {max_wait: 1h}",
    ),
    "TPUs beside other machines": Broken(
        code="tpu-pools",
        remedy="",
        **of_config(
            vertex(
                "replicaCount: 1, machineSpec: {machineType: ct5lp-hightpu-4t, tpuTopology: 2x2}",
                "replicaCount: 1, machineSpec: {machineType: n1-standard-8}",
            )
        ),
    ),
    "workers with TPUs, as AI Platform had them": Broken(
        code="tpu-replicas",
        remedy="count: 1",
        where="cluster.workers.count",
        job="cluster: {workers: {machine: cloud-tpu, accelerator: {type: TPU_V2, count: 8}}}",
        also=frozenset({"tpu-pools", "trainer-tpu", "tensorflow-build"}),
    ),
    "a topology of another machine": Broken(
        code="tpu-topology",
        remedy="tpuTopology: 4x4",
        **of_config(
            vertex(
                "replicaCount: 1, machineSpec: {machineType: ct5lp-hightpu-4t, tpuTopology: 4x5}"
            )
        ),
    ),
    "so many cores of a TPU": Broken(
        code="tpu-count",
        remedy="8",
        **of_config(
            vertex(
                "replicaCount: 1, machineSpec: {machineType: cloud-tpu, acceleratorType: TPU_V2, "
                "acceleratorCount: 9}"
            )
        ),
    ),
}

# What is no job at all is refused when it is read: a line of a file, and what was expected there.
UNREADABLE = {
    "two chiefs": (
        of_config(vertex("replicaCount: 2, machineSpec: {machineType: n1-standard-8}")),
        "config.yaml:2:18: workerPoolSpecs[0].replicaCount: expected 1",
    ),
    "a field that Google has not": (
        {"job": "vertex: {jobSpec: {enableWebAcess: true}}"},
        "vertex.jobSpec.enableWebAcess: unknown field; did you mean 'enableWebAccess'?",
    ),
    "a worker count in letters": (
        {"job": "cluster: {workers: {count: three}}"},
        "cluster.workers.count: expected a whole number of 0 or more, got 'three'",
    ),
    "a strategy with a letter too many": (
        {"job": "scheduling: {strategy: SPOTT}"},
        "scheduling.strategy: expected STANDARD, SPOT or FLEX_START, got 'SPOTT'; did you mean",
    ),
    "a price in words": (
        {"files": {"distlaunch.prices.yaml": "us-central1:\n  SPOT: {n1-standard-8: cheap}\n"}},
        "distlaunch.prices.yaml:2:25: us-central1.SPOT.n1-standard-8: expected",
    ),
    "a catalogue with a key of its own": (
        {"files": {"distlaunch.catalogue.yaml": "machine: {}\n"}},
        "distlaunch.catalogue.yaml:1:1: machine: unknown key; did you mean 'machines'?",
    ),
}
