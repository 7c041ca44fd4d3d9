"""The reason of a failure from real texts of the programs that print them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.failure_reasons import KEPT_LINES, VICTIM, FailureReport, explain

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
    "a permission is missing: User does not have bigquery.jobs.create": "google.api_core.exceptions"
    ".Forbidden: 403 POST https://bigquery.googleapis.com/bigquery/v2/projects/p/jobs: Access "
    "Denied: Project p: User does not have bigquery.jobs.create permission in project p.",
    "a bucket, file or table does not exist: The specified bucket does not exist": "google.api_core"
    ".exceptions.NotFound: 404 GET https://storage.googleapis.com/storage/v1/b/x: The specified "
    "bucket does not exist.",
    "a bucket, file or table does not exist: gs://no-such-bucket/data": "tensorflow.python."
    "framework.errors_impl.NotFoundError: Error executing an HTTP request: HTTP response code 404 "
    "with body "
    '\'{\n "message": "The specified bucket does not exist."\n}\'\n'
    "\t when reading gs://no-such-bucket/data",
    "a bucket, file or table does not exist: The specified bucket": "NotFoundError: Error executing"
    ' an HTTP request: HTTP response code 404 with body "The specified bucket does not exist."',
    "a bucket, file or table does not exist: Not found: Table p:d.t": "google.api_core.exceptions."
    "NotFound: 404 Not found: Table p:d.t was not found in location US",
    "google.api_core.exceptions.PermissionDenied: 403 Request had insufficient": "google.api_core."
    "exceptions.PermissionDenied: 403 Request had insufficient authentication scopes. [reason: "
    '"ACCESS_TOKEN_SCOPE_INSUFFICIENT"',
    "the image does not have a library of the system that a package needs: libGL.so.1": "Import"
    "Error: libGL.so.1: cannot open shared object file: No such file or directory",
    "the image does not have a library of the system that a package needs: libgomp.so.1": "OSError:"
    " libgomp.so.1: cannot open shared object file: No such file or directory",
    "the image does not have a library of the system that a package needs: GLIBCXX_3.4.30": "Import"
    "Error: /lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /x/_io.so)",
    "the versions of two packages do not fit: cannot import name 'Layer' from 'keras'": "Import"
    "Error: cannot import name 'Layer' from 'keras' (/usr/lib/python3/dist-packages/keras.py)",
    "the versions of two packages do not fit: cannot import name 'a' from 'b'": "Import"
    "Error: cannot import name 'a' from 'b' (unknown location)",
    "the versions of two packages do not fit: numpy.dtype size changed": "ValueError: numpy.dtype "
    "size changed, may indicate binary incompatibility. Expected 96 from C header, got 88",
    "a Python module cannot be imported: trainer.task": "/usr/local/bin/python: No module named "
    "trainer.task",
    "a Python module cannot be imported: pyarrow": "ImportError: Missing optional dependency "
    "'pyarrow'. Use pip or conda to install pyarrow.",
    "the image is for another platform than linux/amd64, or a script": "exec /usr/bin/python: exec "
    "format error",
    "the image is for another platform than linux/amd64, or": "standard_init_linux.go:228: exec "
    "user process caused: exec format error",
    "the lines of a script end with CR LF, or the image": "standard_init_linux.go:228: exec user "
    "process caused: no such file or directory",
    "the lines of a script end with CR LF, or": "exec /app/start.sh: no such file or directory",
    "the lines of a script end with CR LF": "/usr/bin/env: 'bash\\r': No such file or directory",
    "the lines of a script end with": "./run.sh: line 2: $'\\r': command not found",
    "the program does not take its arguments: Unknown command line flag 'job_dir'": "  Unknown "
    "command line flag 'job_dir'. Did you mean: log_dir ?",
    "the program does not take its arguments: No such option: --job-dir": "Error: No such option: "
    "--job-dir Did you mean --data-dir?",
    "the program may not use a file: PermissionError: [Errno 13] Permission denied: '/app/out'": ""
    "PermissionError: [Errno 13] Permission denied: '/app/out'",
    "the program may not use a file: exec /app/run.sh": "exec /app/run.sh: permission denied",
    "W&B has no API key": "wandb.errors.UsageError: api_key not configured (no-tty). call "
    "wandb.login(key=[your_api_key])",
    "the container's shared memory (/dev/shm) is full": "RuntimeError: DataLoader worker is killed "
    "by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
    "the program crashed (segmentation fault)": "Fatal Python error: Segmentation fault",
    "a file is missing: can't open file '/app/t.py'": "python: can't open file '/app/t.py': [Errno "
    "2] No such file or directory",
    "a disk is full": "OSError: [Errno 28] No space left on device",
    "a disk is": "Replicas low on disk: workerpool0. Specify a larger bootDiskSizeGb "
    "https://cloud.google.com/vertex-ai/docs/reference/rest/v1/DiskSpec and try again.",
    "the image has no such command": "The replica workerpool0-0 exited with a non-zero status of "
    "128. Termination reason: StartError. Termination log message: failed to create containerd "
    "task: failed to create shim",
    "the image has no such command: train": "docker: Error response from daemon: failed to create "
    'task for container: exec: "train": executable file not found in $PATH: unknown.',
    "the image has no such command: /app/train": "OCI runtime create failed: failed to create shim "
    'task: exec: "/app/train": stat /app/train: no such file or directory: unknown',
    "the image has no such command: python": "/bin/sh: 1: python: not found",
    "the image has no such command: accelerate": "run.sh: line 3: accelerate: command not found",
    "the versions of two packages do not fit: A module that was compiled using NumPy 1.x": "A "
    "module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.1.0 as it may crash.",
    "the program has no valid credentials for Google Cloud: Your default credentials were not found"
    "": "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found. "
    "To set up Application Default Credentials, see https://cloud.google.com/docs/authentication",
    "the program has no valid credentials for Google Cloud: File /key.json was not found": "google."
    "auth.exceptions.DefaultCredentialsError: File /key.json was not found.",
    "the cluster did not form": "trainer: error: worker:1 (10.0.0.3:2222) did not come within 60 s",
    "a step did not end": "trainer: error: chief: no step has ended for 1800 s: this task is in "
    "trainer/data.py, line 3",
    "the job ran longer than its timeout": "The job ran longer than its scheduling.timeout and was "
    "cancelled.",
}


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to",
        "failed to allocate 7.4G from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "XLA:TPU compile permanent error. Ran out of memory in memory space hbm.",
    ],
)
def test_the_memory_of_a_gpu_is_not_that_of_the_machine(text):
    assert explain(text).reason == "the memory of a GPU is full"


def test_the_scopes_of_a_job_come_with_its_account():
    remedy = explain("403 Request had insufficient authentication scopes.").remedy
    assert remedy.startswith("set service_account in distlaunch.yaml")


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


def test_a_404_without_a_name_has_none():
    text = "NotFoundError: Error executing an HTTP request: HTTP response code 404"
    assert explain(text).reason == "a bucket, file or table does not exist"


@pytest.mark.parametrize(
    "text",
    [
        "epoch 1/2: loss 0.1 accuracy 0.9",
        "trainer: error: the checkpoint is not of this model: its optimizer is Adam",
        "ValueError: the shapes (3,) and (4,) differ (trainer/model.py, line 7)",
        "a nanny and financial inference",
        "ImportError: cannot import name 'f' from 'trainer.data' (/app/trainer/data.py)",
        "ImportError: cannot import name 'f' from partially initialized module 'a' (/a.py)",
        "ImportError: this build of the package needs AVX",
        "urllib3: 403 Client Error: Forbidden for url: https://huggingface.co/x",
        "wandb: WARNING If you're specifying your api key in code, ensure this code is not shared",
        "  File '/app/keras/constraints/constraints.py', line 3",
        "W0000 dso_loader.cc:64] Could not load dynamic library 'libnvinfer.so.7'; dlerror: "
        "libnvinfer.so.7: cannot open shared object file: No such file or directory",
        "I0000 coordination_service.cc:630] preemption sync protocol is ready",
        "KeyError: user 17: profile: not found",
        "PIL.UnidentifiedImageError: the image of label cat was not found in the index",
    ],
)
def test_an_unknown_text_has_no_invented_reason(text):
    assert explain(text) is None
    assert explain(text, exit_code=1) is None


@pytest.mark.parametrize(("code", "part"), [(137, "SIGKILL"), (2, "called wrongly"), (139, "segm")])
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
