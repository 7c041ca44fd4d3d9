"""Jobs whose program, requirements or data are wrong."""

from __future__ import annotations

from .cases import SPOT, WITH_GPUS, Broken

DOCKERFILE = """\
FROM python:3.12-slim
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
ENTRYPOINT ["python", "-m", "trainer.task"]
"""

_RDMA = """
region: us-west1
cluster:
  chief: {machine: a3-ultragpu-8g, accelerator: {type: NVIDIA_H200_141GB, count: 8}}
  workers: null
args: [--epochs=8, --shards=240]
"""
_FOLDER = 'f"{Path(__file__).resolve().parents[1]}/data"'

PROJECT = {
    "a module that is not there": Broken(
        code="module-missing",
        remedy="trainer.task",
        where="module",
        job="module: trainer.tusk",
    ),
    "a module that is left out": Broken(
        code="module-not-in-image",
        remedy=".dockerignore",
        files={".dockerignore": "trainer\n"},
    ),
    "a bracket that is open": Broken(
        code="source-syntax",
        remedy="",
        where="trainer/model.py:",
        files={"trainer/model.py": "import keras\n\n\ndef create_model(:\n    return None\n"},
    ),
    "a print of Python 2": Broken(
        code="source-syntax",
        remedy="",
        where="trainer/old.py:1",
        edits={"trainer/model.py": ("import keras\n", "import keras\n\nfrom trainer import old\n")},
        files={"trainer/old.py": "print 'loss', 3\n"},
    ),
    "pandas, which nobody installs": Broken(
        code="import-missing",
        remedy="pandas",
        where="trainer/data.py:",
        edits={
            "trainer/data.py": ("import tensorflow as tf", "import pandas\nimport tensorflow as tf")
        },
    ),
    "an import by another name than the package": Broken(
        code="import-missing",
        remedy="opencv-python",
        where="trainer/data.py:",
        edits={
            "trainer/data.py": (
                "import tensorflow as tf",
                "import tensorflow as tf\nimport cv2",
            )
        },
    ),
    "a requirement of any version": Broken(
        code="requirement-unpinned",
        severity="warning",
        remedy="==",
        where="requirements.txt:",
        files={"requirements.txt": "tensorflow-cpu==2.21.0\nkeras>=3.12,<3.16\npandas\n"},
    ),
    "two versions of one": Broken(
        code="requirement-clash",
        remedy="",
        where="requirements.txt:",
        files={
            "requirements.txt": "tensorflow-cpu==2.21.0\nkeras>=3.12,<3.16\n"
            "pillow==11.0.0\nPillow==10.0.0\n"
        },
    ),
    "a requirement that pip cannot read": Broken(
        code="requirement-unreadable",
        remedy="",
        where="requirements.txt:3",
        files={"requirements.txt": "tensorflow-cpu==2.21.0\nkeras>=3.12,<3.16\nsix===,>\n"},
    ),
    "a base that the Dockerfile does not begin with": Broken(
        code="dockerfile-wins",
        severity="warning",
        remedy="write FROM python:3.12.12-slim-bookworm in Dockerfile",
        where="image.base",
        files={"Dockerfile": DOCKERFILE.replace("3.12", "3.11")},
    ),
    "a Dockerfile that installs TensorFlow without CUDA": Broken(
        code="tensorflow-build",
        remedy="write tensorflow[and-cuda]",
        where="requirements.txt:5",
        job=f"{WITH_GPUS}\nimage: {{base: null}}",
        files={"Dockerfile": DOCKERFILE},
    ),
    "a misread requirement of TensorFlow": Broken(
        code="requirement-unreadable",
        remedy="write tensorflow==2.19.0",
        where="requirements.txt:1",
        files={"requirements.txt": "tensorflow=2.19.0\nkeras>=3.12,<3.16\n"},
    ),
    "distlaunch itself in the program": Broken(
        code="import-missing",
        remedy="copy the code that the program needs",
        where="trainer/data.py:",
        edits={
            "trainer/data.py": (
                "import tensorflow",
                "from distlaunch import job\nimport tensorflow",
            )
        },
    ),
    "a broken file that nothing imports": Broken(
        code="source-syntax",
        severity="warning",
        remedy=".dockerignore",
        where="trainer/unused.py:1",
        files={"trainer/unused.py": "def f(:\n"},
    ),
    "TensorFlow as it was called on a GPU once": Broken(
        code="tensorflow-build",
        remedy="write tensorflow, ",
        where="requirements.txt:1",
        job=WITH_GPUS,
        files={"requirements.txt": "tensorflow-gpu==2.10.0\nkeras>=3.12,<3.16\n"},
    ),
    "TensorFlow for CPUs on a GPU, held by its hash": Broken(
        code="tensorflow-build",
        remedy="and-cuda",
        job=WITH_GPUS,
        files={
            "requirements.txt": "tensorflow-cpu==2.21.0 --hash=sha256:"
            f"{'0' * 64}\nkeras==3.12.0 --hash=sha256:{'0' * 64}\n"
        },
    ),
    "SPOT, and a day to lose": Broken(
        code="spot-without-checkpoints",
        severity="warning",
        remedy="--checkpoint-every",
        where="args",
        job=SPOT,
    ),
    "SPOT that begins anew each time": Broken(
        code="spot-without-resume",
        severity="warning",
        remedy="--no-resume",
        where="args",
        job=f"{SPOT}\nargs: [--epochs=8, --checkpoint-every=100, --no-resume]",
    ),
    "batch normalisation by the worker": Broken(
        code="batch-norm-unsynchronised",
        severity="warning",
        remedy="--sync-batch-norm",
        where="trainer/model.py:",
        edits={
            "trainer/model.py": (
                "keras.layers.Flatten(),",
                "keras.layers.BatchNormalization(),\n            keras.layers.Flatten(),",
            )
        },
    ),
    "an engine room of another age": Broken(
        code="trainer-older",
        severity="warning",
        remedy="init",
        where="trainer/distributed/__init__.py",
        edits={"trainer/distributed/__init__.py": ('__version__ = "', '__version__ = "0.0.')},
    ),
    "a model by another name": Broken(
        code="trainer-incomplete",
        remedy="create_model",
        where="trainer/model.py",
        edits={"trainer/model.py": ("def create_model(", "def build_model(")},
    ),
    "parameter servers": Broken(
        code="trainer-role",
        remedy="",
        where="cluster.parameter_servers",
        job="cluster: {parameter_servers: {machine: n1-standard-8}}",
    ),
    "evaluators": Broken(
        code="trainer-role",
        remedy="",
        where="cluster.evaluators",
        job="cluster: {evaluators: {machine: n1-standard-8}}",
    ),
    "another backend of Keras": Broken(
        code="keras-backend",
        remedy="remove it",
        where="env.KERAS_BACKEND",
        job="env: {KERAS_BACKEND: torch}",
    ),
    "more GPUs in the workers than in the chief": Broken(
        code="accelerators-unequal",
        remedy="same number",
        where="cluster.workers.accelerator.count",
        job="cluster: {chief: {accelerator: {type: NVIDIA_TESLA_T4, count: 1}}, "
        "workers: {accelerator: {type: NVIDIA_TESLA_T4, count: 2}}}",
    ),
    "a trainer of workers on a TPU": Broken(
        code="trainer-tpu",
        remedy="",
        where="cluster.chief",
        job="{cluster: {chief: {machine: cloud-tpu, accelerator: {type: TPU_V2, count: 8}}, "
        "workers: null}}",
        also=frozenset({"tensorflow-build"}),
    ),
    "an image of TensorFlow with an old cuDNN": Broken(
        code="image-cuda",
        severity="warning",
        remedy="write image.base: python:3.12-slim, and tensorflow[and-cuda] in the requirements",
        where="image.base",
        job=f"{WITH_GPUS}\nimage: {{base: 'tensorflow/tensorflow:2.21.0-gpu'}}",
        files={"requirements.txt": "keras>=3.12,<3.16\n"},
    ),
    "an image that Google no longer offers": Broken(
        code="image-ended",
        severity="warning",
        remedy="write image.base: python:3.12-slim",
        where="image.base",
        job="image: {base: us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest}",
        files={"requirements.txt": "keras>=3.12,<3.16\n"},
    ),
    "RDMA that the user's own image does not use": Broken(
        code="rdma-environment",
        severity="warning",
        remedy="source /usr/local/gib/scripts/set_nccl_env.sh",
        where="cluster.",
        job=f"{_RDMA}\nimage: {{base: null}}",
        files={
            "Dockerfile": DOCKERFILE,
            "requirements.txt": "tensorflow[and-cuda]==2.21.0\nkeras>=3.12,<3.16\n",
        },
    ),
    "a Reduction Server without its package": Broken(
        code="reduction-server-package",
        severity="warning",
        remedy="docs/job-file.md",
        where="reduction_server",
        job=f"{WITH_GPUS}\nreduction_server: {{replicas: 2}}",
    ),
    "an option with a letter left out": Broken(
        code="argument-unknown", remedy="--epochs", where="args", job="args: [--epoch=8]"
    ),
    "a search between whole numbers": Broken(
        code="argument-unknown",
        remedy="--help",
        where="tuning.parameters.batch-size",
        job="tuning: {metric: val_loss, goal: minimize, trials: 4, "
        "parameters: {batch-size: {type: double, min: 16, max: 64}}}",
    ),
    "an option of this command line's, with --": Broken(
        code="argument-unknown",
        remedy="--batch-size",
        where="arguments after --",
        words=("--", "--batchsize", "64"),
    ),
}

DATA = {
    "data on a laptop": Broken(
        code="data-on-this-machine",
        remedy="gs://",
        where="trainer/data.py",
        edits={"trainer/data.py": (_FOLDER, '"/nowhere/at/all"')},
        data={"kind": "records", "pattern": "/nowhere/at/all/train-*", "files": [], "examples": 99},
    ),
    "data that stays here": Broken(
        code="data-not-in-image",
        remedy="include",
        job="image: {include: []}",
    ),
    "fewer examples than workers": Broken(
        code="data-too-few",
        remedy="3 with this cluster",
        where="trainer/data.py",
        data={"kind": "arrays", "examples": 0},
    ),
    "workers that do not divide the shards": Broken(
        code="shards-not-divided",
        remedy="count: 0, 1, 2, 3, 5 or 11",
        job="cluster: {workers: {count: 4}}",
    ),
    "a batch for some": Broken(
        code="batch-idle",
        remedy="--global-batch-size",
        where="args",
        job="args: [--epochs=8, --global-batch-size=2]",
    ),
    "a batch by the worker and one for all": Broken(
        code="batch-clash",
        remedy="leave one out",
        where="args",
        job="args: [--epochs=8, --batch-size=32, --global-batch-size=64]",
    ),
    "steps that leave out a half": Broken(
        code="steps-partial",
        severity="warning",
        remedy="--steps-per-epoch",
        where="args",
        job="args: [--epochs=8, --steps-per-epoch=7]",
    ),
    "steps that begin again": Broken(
        code="steps-repeat",
        severity="warning",
        remedy="--steps-per-epoch",
        where="args",
        job="args: [--epochs=8, --steps-per-epoch=100]",
    ),
    "an empty training file": Broken(
        code="data-empty",
        severity="warning",
        remedy="write it again",
        where="data/train-00005-of-00005.tfrecord",
        files={"data/train-00005-of-00005.tfrecord": b""},
    ),
}
