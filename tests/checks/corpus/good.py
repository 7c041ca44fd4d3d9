"""Jobs that are all right, of many kinds, and the warnings that belong to some of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from .cases import REGISTRY, WITH_GPUS, Case, of_config

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True, eq=False)
class Good(Case):
    """A job that is ready.

    Parameters
    ----------
    warned
        Codes of what is rightly warned of.
    google
        All is there.
    """

    warned: frozenset[str] = frozenset()
    google: Mapping[str, Any] | None = field(default_factory=dict)


A100 = """
cluster:
  chief: {machine: a2-highgpu-1g, accelerator: {type: NVIDIA_TESLA_A100, count: 1}}
  workers: {machine: a2-highgpu-1g, accelerator: {type: NVIDIA_TESLA_A100, count: 1}, count: 3}
"""
OWN_PROGRAM = "import json\nimport os\n\nprint(json.loads(os.environ['TF_CONFIG']))\n"
LEGACY = f"""\
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-standard-8
  masterConfig: {{imageUri: '{REGISTRY}/python:3.12'}}
  workerType: n1-standard-8
  workerCount: '2'
  useChiefInTfConfig: true
  args: [--epochs=8]
  scheduling: {{maxRunningTime: 7200s}}
"""
LEGACY_BUILT = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-standard-8
  masterConfig: {acceleratorConfig: {count: '2', type: NVIDIA_TESLA_T4}}
  useChiefInTfConfig: true
  args: [--epochs=8]
"""
LEGACY_TUNED = f"""{LEGACY_BUILT}\
  hyperparameters:
    hyperparameterMetricTag: accuracy
    goal: MAXIMIZE
    maxTrials: 4
    params:
    - {{parameterName: epochs, type: INTEGER, minValue: 1, maxValue: 8}}
    - {{parameterName: learning-rate, type: DOUBLE, minValue: 1e-4, maxValue: 1}}
"""
SPEC = f"""\
workerPoolSpecs:
- machineSpec: {{machineType: g2-standard-12, acceleratorType: NVIDIA_L4, acceleratorCount: 1}}
  replicaCount: 1
  containerSpec: {{imageUri: '{REGISTRY}/python:3.12', args: [--epochs=8]}}
- machineSpec: {{machineType: g2-standard-12, acceleratorType: NVIDIA_L4, acceleratorCount: 1}}
  replicaCount: 3
  containerSpec: {{imageUri: '{REGISTRY}/python:3.12', args: [--epochs=8]}}
"""
WHOLE_JOB = f"""\
{{"displayName": "A digit or two", "labels": {{"team": "vision"}}, "jobSpec": {{
  "workerPoolSpecs": [{{
    "machineSpec": {{"machineType": "n1-standard-8"}}, "replicaCount": "1",
    "diskSpec": {{"bootDiskType": "pd-ssd", "bootDiskSizeGb": 200}},
    "containerSpec": {{"imageUri": "{REGISTRY}/python:3.12"}}
  }}],
  "scheduling": {{"timeout": "7200s"}},
  "baseOutputDirectory": {{"outputUriPrefix": "gs://demo-bucket/digits/one"}}
}}}}
"""
TPU = f"""\
workerPoolSpecs:
- machineSpec: {{machineType: ct5lp-hightpu-4t, tpuTopology: 2x2}}
  replicaCount: 1
  containerSpec: {{imageUri: '{REGISTRY}/python:3.12'}}
"""
REDUCTION = f"""\
workerPoolSpecs:
- machineSpec: &v100
    machineType: n1-standard-8
    acceleratorType: NVIDIA_TESLA_V100
    acceleratorCount: 2
  replicaCount: 1
  containerSpec: {{imageUri: '{REGISTRY}/python:3.12'}}
- machineSpec: *v100
  replicaCount: 1
  containerSpec: {{imageUri: '{REGISTRY}/python:3.12'}}
- machineSpec: {{machineType: n1-highcpu-16}}
  replicaCount: 4
  containerSpec:
    imageUri: us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest
"""
TUNED = """
tuning:
  metric: accuracy
  goal: maximize
  trials: 20
  parallel_trials: 4
  parameters:
    learning-rate: {type: double, min: 0.0001, max: 0.1, scale: log}
    batch-size: {type: double, values: [32, 64, 128]}
"""
DATASET = '''\
"""Numbers from nowhere."""

import numpy as np
import tensorflow as tf


def training():
    x = np.random.default_rng(0).normal(size=(1437, 8, 8, 1)).astype("float32")
    y = (x.sum((1, 2, 3)) > 0).astype("int64")
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).batch(60)
'''
ARRAYS = '''\
"""Arrays in a file."""

import numpy as np

from trainer.distributed.input import Arrays


def training():
    with np.load("data/train.npz") as data:
        return Arrays(data["x"], data["y"])
'''
CAREFUL = '''\
"""The model, and much that is imported in case it is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import keras

from . import layers
from .layers import dense

try:
    import wandb
except ImportError:
    wandb = None

if TYPE_CHECKING:
    import pandas


def create_model() -> keras.Model:
    model = keras.Sequential(
        [keras.layers.Input((8, 8, 1)), keras.layers.Flatten(), dense(json.loads("10"))]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
'''
LAYERS = """\
import keras


def dense(units):
    return keras.layers.Dense(units)
"""
DOCKERFILE = f"""\
FROM {REGISTRY}/python:3.12
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY trainer trainer
COPY data data
ENTRYPOINT ["python", "-m", "trainer.task"]
"""
CONSTANT = 'f"{Path(__file__).resolve().parents[1]}/data"'
REQUIREMENTS = "tensorflow-cpu==2.21.0\nkeras>=3.12,<3.16\n"


def reading_from(place: str) -> dict[str, object]:
    """Return what makes a case read its data elsewhere."""
    return {
        "edits": {"trainer/data.py": (CONSTANT, f'"{place}"')},
        "job": "image: {include: []}",
        "data": {"kind": "records", "pattern": f"{place}/*", "files": [], "examples": 1437},
    }


GOOD = {
    "what init makes": Good(),
    "one machine": Good(job="cluster: {workers: null}"),
    "a GPU each": Good(job=WITH_GPUS),
    "several GPUs on one machine": Good(
        job="cluster: {chief: {accelerator: {type: NVIDIA_TESLA_T4, count: 4}}, workers: null}"
    ),
    "the largest cluster of twelve shards": Good(job="cluster: {workers: {count: 11}}"),
    "more shards for more workers": Good(
        job="{cluster: {workers: {count: 4}}, args: [--epochs=8, --shards=20]}"
    ),
    "SPOT with checkpoints": Good(
        job=f"{WITH_GPUS}scheduling: {{strategy: SPOT}}\nargs: [--epochs=8, --checkpoint-every=100]"
    ),
    "FLEX_START on A100s": Good(
        job=f"{A100}scheduling: {{strategy: FLEX_START, timeout: 7d, max_wait: 1d}}"
    ),
    "AI Platform's file": Good(**of_config(LEGACY)),
    "AI Platform's file, and the image is built here": Good(**of_config(LEGACY_BUILT)),
    "AI Platform's file with hyperparameters": Good(**of_config(LEGACY_TUNED)),
    "Vertex AI's spec": Good(**of_config(SPEC)),
    "Vertex AI's job as JSON": Good(**of_config(WHOLE_JOB, "job.json")),
    "a TPU with an image of one's own": Good(**of_config(TPU, "tpu.yaml")),
    "a reduction server": Good(**of_config(REDUCTION)),
    "a tuned job": Good(job=TUNED),
    "a Dockerfile of one's own": Good(job="image: {base: null}", files={"Dockerfile": DOCKERFILE}),
    "an image that is there": Good(
        job=f"image: {{uri: '{REGISTRY}/python:3.12', repository: null}}"
    ),
    "parameter servers of a program of one's own": Good(
        job="{module: program.main, args: [], image: {include: []}, "
        "cluster: {parameter_servers: {machine: n1-highmem-8, count: 2}, "
        "evaluators: {machine: n1-standard-4}}}",
        files={"program/__init__.py": "", "program/main.py": OWN_PROGRAM},
    ),
    "a data set of one's own": Good(
        files={"trainer/data.py": DATASET},
        job="image: {include: []}",
        data={"kind": "dataset", "batch": 60, "examples": 1437},
    ),
    "arrays": Good(
        files={"trainer/data.py": ARRAYS, "data/train.npz": b"PK"},
        data={"kind": "arrays", "examples": 1437},
    ),
    "data in a bucket": Good(**reading_from("gs://demo-bucket/digits")),
    "data in a bucket that is a folder": Good(**reading_from("/gcs/demo-bucket/digits")),
    "pandas, pinned": Good(
        files={"requirements.txt": f"{REQUIREMENTS}pandas==2.3.3\n"},
        edits={"trainer/data.py": ("import tensorflow", "import pandas\nimport tensorflow")},
    ),
    "packages by other names": Good(
        files={
            "requirements.txt": f"{REQUIREMENTS}pillow==11.0.0\nopencv-python-headless==4.10.0.84\n"
            "scikit-learn==1.6.0\nPyYAML==6.0.2\ngoogle-cloud-storage==3.1.0\n"
        },
        edits={
            "trainer/data.py": (
                "import tensorflow as tf",
                "import cv2\nimport numpy as np\nimport sklearn.metrics\nimport tensorflow as tf\n"
                "import yaml\nfrom google.cloud import storage\nfrom PIL import Image",
            )
        },
    ),
    "imports that need not succeed": Good(
        files={"trainer/model.py": CAREFUL, "trainer/layers.py": LAYERS}
    ),
    "a module beside the package": Good(
        job="image: {include: [data, helpers.py]}",
        files={"helpers.py": "RATE = 1\n"},
        edits={"trainer/model.py": ("import keras\n", "import keras\n\nimport helpers\n")},
    ),
    "batch normalisation over all": Good(
        job="args: [--epochs=8, --sync-batch-norm]",
        edits={
            "trainer/model.py": (
                "keras.layers.Flatten(),",
                "keras.layers.BatchNormalization(),\n            keras.layers.Flatten(),",
            )
        },
    ),
    "every option of the trainer's": Good(
        job="args: [--epochs=8, --global-batch-size=60, --learning-rate=1e-3, --seed=1, "
        "--shards=24, --shuffle=0, --precision=mixed_bfloat16, --checkpoint-every, '50', --resume]"
    ),
    "steps that are those of the data": Good(
        job="args: [--epochs=8, --batch-size=64, --steps-per-epoch=8]"
    ),
    "all that a job can say": Good(
        job=dedent("""\
            env: {LOG_LEVEL: info}
            labels: {team: vision}
            service_account: trainer@demo-project.iam.gserviceaccount.com
            network: projects/123/global/networks/my-network
            tensorboard: projects/123/locations/us-central1/tensorboards/456
            vertex: {jobSpec: {enableWebAccess: true}}
            """)
    ),
    "a machine of one's own knowledge": Good(
        job="cluster: {chief: {machine: n9-standard-8}, workers: {machine: n9-standard-8}}",
        files={
            "distlaunch.catalogue.yaml": "machines:\n  n9-standard-8: "
            "{cpus: 8, memory_gb: 32, family: N1, accelerators: {}}\n"
        },
    ),
}
