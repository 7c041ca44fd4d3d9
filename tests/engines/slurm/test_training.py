"""The starter trains on a Slurm cluster, is killed, requeued, cancelled, and resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

TRAIN = ("--epochs=4", "--global-batch-size=96", "--checkpoint-every=5")
LAST_STEP = 60
# So that commands come in time, on a busy machine too: 60 steps take 30 s.
SLOW = """

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        __import__("time").sleep(0.5)
"""
PATIENCE = 120  # seconds with a cluster's start


def weights(folder: Path, job_dir: str | Path) -> list[np.ndarray]:
    """Return the weights of a job's model, read in a new Python."""
    target = folder / "weights.npz"
    code = (
        "import sys, keras, numpy; "
        "model = keras.models.load_model(sys.argv[1]); "
        "numpy.savez(sys.argv[2], *model.get_weights())"
    )
    model = f"{job_dir}/model/model.keras"
    subprocess.run([sys.executable, "-c", code, model, target], check=True, capture_output=True)
    with np.load(target) as arrays:
        return [arrays[name] for name in arrays.files]


def kill(job: str, task: str) -> None:
    """Kill the program of a task of a job."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = environ.read_bytes().decode(errors="replace")
            command = environ.with_name("cmdline").read_bytes()
        except OSError:
            continue
        is_program = b"trainer.task" in command and b"distlaunch_trainer.slurm" not in command
        if is_program and f"{job}/task-logs" in text and f"/{task}.events.jsonl" in text:
            os.kill(int(environ.parent.name), signal.SIGKILL)
            return
    raise AssertionError(f"{task} does not run")


def wait_for_checkpoint(project, job_dir: str, after: int = 0) -> int:
    """Return the step of a checkpoint after a step, once there is one."""
    deadline = time.monotonic() + PATIENCE
    while True:
        paths = Path(job_dir, "checkpoints").glob("step-*/checkpoint.json")
        step = max((int(path.parent.name.removeprefix("step-")) for path in paths), default=0)
        if step > after:
            return step
        assert time.monotonic() < deadline, project.logs()
        time.sleep(0.1)


def test_parameter_servers_end_with_the_chief(digits):
    server = "--set=cluster.parameter_servers={machine: n1-standard-4, count: 1}"
    done = digits.run("submit", "--set=cluster.workers.count=1", server, "--", "--epochs=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 parameter server" in done.stderr
    assert digits.status()["state"] == "SUCCEEDED"


def test_a_job_survives_a_kill_a_requeue_and_a_cancel_with_the_weights_of_a_calm_run(
    digits, tensorflow
):
    calm = digits.folder / "calm"
    words = ("local", "--workers=3", f"--job-dir={calm}", "--", *TRAIN)
    done = tensorflow.run("distlaunch", *words, cwd=digits.folder, env=os.environ)
    assert done.code == 0, done.text
    model = digits.folder / "trainer" / "model.py"
    quick = model.read_text()
    text = quick.replace("return [", "return [Slow(), ")
    model.write_text(text.replace("\n\ndef callbacks", f"{SLOW}\n\ndef callbacks"))

    job = digits.submit("--set=cluster.workers.count=2", "--", *TRAIN)
    job_dir = digits.status(job)["job_dir"]
    wait_for_checkpoint(digits, job_dir)
    kill(job, "worker-0")
    failed = digits.wait_for("FAILED", job=job)
    assert failed["failure"]["task"] == "worker:0"
    assert "SIGKILL" in failed["failure"]["reason"]

    before = wait_for_checkpoint(digits, job_dir)
    digits.cluster.requeue(digits.number(job))
    wait_for_checkpoint(digits, job_dir, before)
    status = digits.status(job)
    assert status["state"] == "RUNNING"
    assert status["configuration"]["scheduling"]["restarts"] == 1
    assert digits.run("cancel", job).returncode == 0
    assert digits.wait_for("CANCELLED", job=job)["failure"] is None
    log = digits.logs(job)
    assert f"resuming after step {before}" in log
    assert "stopped by a signal: saved at step" in log
    saved = wait_for_checkpoint(digits, job_dir, before)
    assert saved < LAST_STEP
    model.write_text(quick)

    again = digits.run(
        "submit", f"--job-dir={job_dir}", "--set=cluster.workers.count=1", "--", *TRAIN
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"resuming after step {saved}" in again.stdout
    for one, other in zip(
        weights(digits.folder, job_dir), weights(digits.folder, calm), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
