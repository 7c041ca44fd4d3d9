"""Tasks that should have GPUs, on a machine where TensorFlow sees none."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

TASKS = ("--workers", "2", "--", "--epochs", "1")
EXPECTED = "expected 1 GPU (DISTLAUNCH_EXPECTED_GPUS), TensorFlow sees none: TensorFlow 2."


@pytest.fixture
def gpu_project(regression, monkeypatch):
    """A project on a machine where `distlaunch local` assigns a GPU to each of two tasks."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    return regression


def test_tasks_without_their_gpus_stop_with_one_message(gpu_project):
    result = gpu_project.local("no-gpus", *TASKS)
    assert result.code == 1
    errors = [line for line in result.out.splitlines() if "trainer: error: " in line]
    assert len(errors) == 1, result.text
    assert f"trainer: error: chief: {EXPECTED}" in errors[0]
    assert errors[0].endswith("; --allow-cpu trains anyway")


def test_they_train_where_that_is_allowed(gpu_project):
    result = gpu_project.local("allowed", *TASKS, "--allow-cpu", "--gpu-memory-growth")
    assert result.code == 0, result.text
    for task in ("chief", "worker:0"):
        assert f"trainer: warning: {task}: {EXPECTED}" in result.out
        assert f"{task:<8} | no GPU, 1 CPU core · TensorFlow 2." in result.out


def test_a_worker_alone_without_its_gpus_is_named(regression):
    """Each task has an expectation of its own: the chief none, the worker 2."""
    program = (
        'case "$TF_CONFIG" in *\'"type": "worker"\'*) export DISTLAUNCH_EXPECTED_GPUS=2;; esac; '
        "exec python -m trainer.task --epochs 1"
    )
    result = regression.local("one", "--workers", "2", "--", "sh", "-c", program)
    assert result.code == 1
    assert "trainer: error: worker:0: expected 2 GPUs" in result.err
