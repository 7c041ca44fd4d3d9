"""Data and job folder in buckets, through TensorFlow's own `gs://` file system."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import keras
import pytest

from ...small_datasets import noise, prepare_tfds, write_image_folder  # noqa: TID252
from .cloud_storage import CloudStorage

pytestmark = pytest.mark.slow

MANIFEST = "checkpoint.json"


@pytest.fixture
def storage(tmp_path):
    with CloudStorage(tmp_path) as storage:
        yield storage


def test_a_cluster_reads_from_and_writes_to_buckets(project, storage, tmp_path):
    for path in (project.folder / "data").glob("*-00000-of-*"):
        storage.put(f"data/digits/{path.name}", path.read_bytes())
    project.replace(
        "trainer/data.py", 'f"{Path(__file__).resolve().parents[1]}/data"', "'gs://data/digits'"
    )
    project = replace(project, environment=storage.environment)
    project.local("gs://jobs/first", "--workers=2", "--", "--epochs=1")
    step = json.loads(storage.objects["jobs/first/summary.json"])["steps"]
    names = storage.names("jobs/first/")
    assert names[-1] == "summary.json"
    model = [name for name in names if name.startswith("model/")]
    assert model[-1] == "model/saved_model.pb", "what makes the model one is written last"
    assert "model/model.keras" in model
    checkpoints = [name for name in names if name.startswith("checkpoints/")]
    folder = f"checkpoints/step-{step:08}"
    assert checkpoints == [f"{folder}/values.npz", f"{folder}/{MANIFEST}"]
    assert any(name.startswith("logs/train/") for name in names)
    assert "data/digits/.records-index.json" in storage.objects
    (tmp_path / "model.keras").write_bytes(storage.objects["jobs/first/model/model.keras"])
    assert keras.models.load_model(tmp_path / "model.keras").count_params() > 0

    project.trainer("--job-dir=gs://jobs/first", "--global-batch-size=64", "--epochs=2")
    summary = json.loads(storage.objects["jobs/first/summary.json"])
    assert summary["resumed_from"] == step
    assert len(summary["epochs"]) == 2
    assert summary["model"] == "gs://jobs/first/model"
    assert [name for name in storage.names("jobs/first/model/") if ".partial" in name] == []


@pytest.fixture
def run(run_code, storage):
    """Run code with the trainer; return its output."""

    def run(code):
        result = run_code(code, **storage.environment)
        assert result.code == 0, result.text
        return result.out

    return run


SOURCES = """
from distlaunch_trainer import Csv, ImageFolder, Tfds, first_batch

sources = (
    ImageFolder("gs://data/images", (4, 4)),
    Csv("gs://data/rows-*.csv", "y"),
    Tfds("svhn_cropped", "train[2:]", data_dir="gs://data/tfds"),
)
for source in sources:
    x, y = next(iter(first_batch(lambda: source)))
    print(x["a"][:, 0].numpy() if isinstance(x, dict) else x.shape, sorted(y.numpy().tolist()))
"""


def test_images_tables_and_tfds_in_a_bucket(run, storage, tmp_path):
    write_image_folder(tmp_path / "images", {"cat": 2, "dog/young": 1}, (5, 6))
    prepare_tfds("svhn_cropped", tmp_path / "tfds", {"train": 5}, (32, 32, 3))
    for path in filter(Path.is_file, tmp_path.glob("*s/**/*")):
        storage.put(f"data/{path.relative_to(tmp_path)}", path.read_bytes())
    storage.put("data/rows-0.csv", b"a,y\n1,2\n")
    storage.put("data/rows-1.csv", b"y,a\n3,4\n")
    labels = sorted(noise(5, (32, 32, 3), 10, seed=5)[1].tolist())
    images, rows, tfds = run(SOURCES).splitlines()
    assert images == "(3, 4, 4, 3) [0, 0, 1]"
    assert rows == "[1 4] [2, 3]"
    shape, _, digits = tfds.partition(" [")
    assert shape == "(3, 32, 32, 3)"
    assert not Counter(digits.strip("]").split(", ")) - Counter(map(str, labels))


CHECKPOINTS = """
import numpy as np
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.saving.checkpoints import Checkpoint, Checkpoints
from distlaunch_trainer.training_state import Progress, RunOptions, TrainingState

def open_checkpoints():
    return Checkpoints("gs://jobs/checkpoints", Report(Role(), "logs"))

checkpoints = open_checkpoints()
assert checkpoints.latest() is None
for step in (1, 2, 3, 4):
    size = 25 << 20 if step == 4 else 10
    options = RunOptions(100, 10, 12, 0, 100, 10, "float32")
    state = TrainingState(options, Progress(step))
    checkpoints.save(Checkpoint(state, {}, {"kernel": np.full(size, step, np.float32)}))
    checkpoints.wait()
latest = open_checkpoints().latest()
assert latest.state.progress.step == 4
kernel = latest.values["kernel"]
assert kernel.size == 25 << 20 and (kernel == 4).all()
"""


def test_the_latest_three_checkpoints_are_kept(run, storage):
    run(CHECKPOINTS)
    assert storage.names("jobs/checkpoints/") == [
        f"step-0000000{step}/{name}" for step in (2, 3, 4) for name in ("values.npz", MANIFEST)
    ]
    first, second = [request for request in storage.requests if request.startswith("DELETE")]
    assert first.endswith(f"/step-00000001/{MANIFEST}"), "the manifest is removed first"
    assert second.endswith("/step-00000001/values.npz")


MODELS = """
import pathlib
from distlaunch_trainer.errors import StorageError
from distlaunch_trainer.task.storage import publish

def publish_model(which):
    for name in ("saved_model.pb", "variables/data", "model.keras"):
        path = pathlib.Path("new", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(which + " " + name)
    publish(pathlib.Path("new"), "gs://jobs/model", last="saved_model.pb")
"""
MODEL_FILES = ["model.keras", "variables/data", "saved_model.pb"]


def model_in(storage):
    return {name: storage.objects[f"jobs/model/{name}"].decode() for name in MODEL_FILES}


def test_a_model_is_uploaded_beside_the_one_before(run, storage):
    storage.refused = (".partial/saved_model.pb",)
    code = """
publish_model("first")
try:
    publish_model("second")
except StorageError as problem:
    print(problem)
"""
    assert run(MODELS + code).startswith("cannot write gs://jobs/model: ")
    assert storage.names("jobs/model/") == MODEL_FILES
    assert model_in(storage) == {name: f"first {name}" for name in MODEL_FILES}

    storage.refused = ()
    storage.put("jobs/model/.partial/left", b"by one that was killed")
    storage.requests.clear()
    run(MODELS + 'publish_model("third")')
    assert storage.names("jobs/model/") == MODEL_FILES
    assert model_in(storage) == {name: f"third {name}" for name in MODEL_FILES}
    gone = storage.requests.index("DELETE /storage/v1/b/jobs/o/model/saved_model.pb")
    assert sum(request.startswith("PUT") for request in storage.requests[:gone]) == len(MODEL_FILES)
    assert sum("/rewriteTo/" in request for request in storage.requests[gone:]) == len(MODEL_FILES)
