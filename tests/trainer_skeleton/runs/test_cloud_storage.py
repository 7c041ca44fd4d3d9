"""Data and job folder in buckets, through TensorFlow's own `gs://` file system."""

from __future__ import annotations

import json
from dataclasses import replace

import keras
import pytest

from .cloud_storage import CloudStorage

pytestmark = pytest.mark.slow


@pytest.fixture
def storage(tmp_path):
    with CloudStorage(tmp_path) as storage:
        yield storage


def test_a_cluster_reads_from_and_writes_to_buckets(project, storage, tmp_path):
    for path in (project.folder / "data").glob("*.tfrecord"):
        storage.put(f"data/digits/{path.name}", path.read_bytes())
    project.replace(
        "trainer/data.py", 'f"{Path(__file__).resolve().parents[1]}/data"', "'gs://data/digits'"
    )
    project = replace(project, environment=storage.environment)

    result = project.local("gs://jobs/first", "--workers=2", "--", "--epochs=1")

    assert result.code == 0, result.text
    assert "examples per epoch  1,437" in result.out
    written = storage.names("jobs/first/")
    assert written[-1] == "summary.json"
    model = [name for name in written if name.startswith("model/")]
    assert model[-1] == "model/saved_model.pb", "what makes the model one is written last"
    assert "model/model.keras" in model
    checkpoints = [name for name in written if name.startswith("checkpoints/")]
    assert checkpoints == [
        f"checkpoints/step-00000023/{name}" for name in ("values.npz", "checkpoint.json")
    ]
    assert any(name.startswith("logs/train/") for name in written)
    assert "data/digits/.records-index.json" in storage.objects
    (tmp_path / "model.keras").write_bytes(storage.objects["jobs/first/model/model.keras"])
    assert keras.models.load_model(tmp_path / "model.keras").count_params() > 0

    again = project.local("gs://jobs/first", "--workers=1", "--", "--epochs=2")

    assert again.code == 0, again.text
    summary = json.loads(storage.objects["jobs/first/summary.json"])
    assert summary["resumed_from"] == 23
    assert len(summary["epochs"]) == 2
    assert summary["model"] == "gs://jobs/first/model"
