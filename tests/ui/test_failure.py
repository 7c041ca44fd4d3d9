"""The reason of a failure from real texts of the programs that print them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.ui.failure import KEPT_LINES, VICTIM, FailureReport, explain

TEXTS = {
    "the region has no machines": "Resources are insufficient in region: us-central1. Please try a "
    "different region.",
    "a quota is exceeded": "The following quota metrics exceed quota limits: "
    "aiplatform.googleapis.com/custom_model_training_nvidia_t4_gpus",
    "the image cannot be pulled": "Error response from daemon: manifest for digits:1 not found: "
    "manifest unknown: manifest unknown",
    "the memory of a GPU is full": "trainer: error: worker:0, step 3 failed: out of memory on "
    "GPU:0: no room for a tensor of shape [64,1024], type float",
    "the memory of a GPU is": "ResourceExhaustedError: OOM when allocating tensor with shape[9,9] "
    "and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    "the task ran out of": "ResourceExhaustedError: OOM when allocating tensor with shape[9,9] and "
    "type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu [Op:Fill]",
    "the task ran out of memory": "The replica workerpool0-0 ran out-of-memory and exited with a "
    "non-zero status of 137.",
    "the task ran out of memor": "Replicas low on memory: workerpool0. Specify a machine with "
    "larger memory and try again.",
    "the machine was preempted": "Instance was preempted.",
    "Vertex AI had an internal error": "Internal error occurred for the current attempt",
    "the loss or a tensor became NaN or infinite": "trainer: error: the loss is not finite at "
    "step 3 (inf): lower --learning-rate",
    "the loss or a tensor became NaN": "trainer: error: chief, step 12 failed: NaN in the output "
    "of MatMul (dense/MatMul) (trainer/model.py, line 7)",
    "a Python module cannot be imported: pandas": "ModuleNotFoundError: No module named 'pandas'",
    "the program is of TensorFlow 1": "ModuleNotFoundError: No module named 'tensorflow.contrib'",
    "the program does not take its arguments: unrecognized arguments: --epoch=3": "task.py: error: "
    "unrecognized arguments: --epoch=3",
    "a permission is missing: a@b.c does not have storage.objects.get": "google.api_core."
    "exceptions.Forbidden: 403 GET https://gs/b: a@b.c does not have storage.objects.get "
    "access to the Google Cloud Storage object.",
    "the data cannot be read": "tensorflow.python.framework.errors_impl.DataLossError: corrupted "
    "record at 12",
    "a file is missing: [Errno 2] No such file or directory: '/data/a.csv'": "FileNotFoundError: "
    "[Errno 2] No such file or directory: '/data/a.csv'",
    "a disk is full": "OSError: [Errno 28] No space left on device",
    "a disk is": "Replicas low on disk: workerpool0. Specify a larger bootDiskSizeGb "
    "https://cloud.google.com/vertex-ai/docs/reference/rest/v1/DiskSpec and try again.",
    "the image has no such command": "The replica workerpool0-0 exited with a non-zero status of "
    "128. Termination reason: StartError. Termination log message: failed to create containerd "
    "task: failed to create shim",
    "the cluster did not form": "trainer: error: worker:1 (10.0.0.3:2222) did not come within 60 s",
    "a step did not end": "trainer: error: chief: no step has ended for 1800 s: this task is in "
    "trainer/data.py, line 3",
    "the job ran longer than its timeout": "The job ran longer than its scheduling.timeout and was "
    "cancelled.",
}


def test_vertex_ai_s_link_to_the_log_is_no_part_of_the_reason():
    link = " To find out more about why your job exited please check the logs: https://console"
    cause = explain(f"task.py: error: unrecognized arguments: --epoch=3{link}")
    assert cause is not None
    assert cause.reason.endswith("unrecognized arguments: --epoch=3")


@pytest.mark.parametrize("reason", TEXTS)
def test_each_known_text_has_its_reason_and_a_remedy(reason):
    cause = explain(TEXTS[reason])
    assert cause is not None
    assert cause.reason.startswith(reason)
    assert cause.remedy


@pytest.mark.parametrize(
    "text",
    [
        "epoch 1/2: loss 0.1 accuracy 0.9",
        "trainer: error: the checkpoint is not of this model: its optimizer is Adam",
        "ValueError: the shapes (3,) and (4,) differ (trainer/model.py, line 7)",
        "a nanny and financial inference",
        "W0000 dso_loader.cc:64] Could not load dynamic library 'libnvinfer.so.7'; dlerror: "
        "libnvinfer.so.7: cannot open shared object file: No such file or directory",
        "I0000 coordination_service.cc:630] preemption sync protocol is ready",
        "PIL.UnidentifiedImageError: the image of label cat was not found in the index",
    ],
)
def test_an_unknown_text_has_no_invented_reason(text):
    assert explain(text) is None
    assert explain(text, exit_code=1) is None


@pytest.mark.parametrize(("code", "part"), [(137, "SIGKILL"), (2, "called wrongly")])
def test_exit_codes_explain_what_no_text_does(code, part):
    assert part in explain("", exit_code=code).reason
    assert explain("No module named 'x'", exit_code=code).reason


def test_the_last_line_with_a_cause_decides():
    lines = "OSError: No space left on device\nModuleNotFoundError: No module named 'a'\nbye"
    assert explain(lines, exit_code=137).reason == "a Python module cannot be imported: a"


def test_tasks_that_lost_their_peers_are_victims():
    assert VICTIM.search("trainer: error: this task lost its peers: another task ended")
    assert VICTIM.search("tensorflow.python.framework.errors_impl.UnavailableError: Socket closed")
    assert not VICTIM.search("ModuleNotFoundError: No module named 'pandas'")


@given(st.lists(st.text(st.characters(exclude_characters="\n"))), st.text())
def test_a_report_keeps_the_last_lines_and_is_text_for_any_input(lines, text):
    report = FailureReport.of("worker:0", explain(text), lines)
    assert len(report.lines) <= KEPT_LINES
    assert all(line.strip() for line in report.lines)
    assert "worker:0 failed first" in report.text(with_lines=True)
    assert bool(report.text(with_lines=False)) is (report.reason is not None)
