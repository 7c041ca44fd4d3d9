"""Broken files in Vertex AI's format, and every line that is reported for each."""

from __future__ import annotations

import json

import pytest

from distlaunch.errors import DistlaunchError
from distlaunch.job.load import load_job

CHIEF = "{machineSpec: {machineType: n1-standard-4}, replicaCount: 1}"
SPEC = f"workerPoolSpecs:\n- {CHIEF}\n"
SHAPES = "trainingInput, workerPoolSpecs, jobSpec or studySpec at the top"


def pool(**fields: object) -> str:
    """Return a spec with one pool, in the one line that JSON is."""
    return json.dumps({"workerPoolSpecs": [{"replicaCount": 1, **fields}]}) + "\n"


LABEL = "expected at most 63 lower-case letters, digits, _ and -"
BROKEN = {
    "a job file of our own": (
        "name: digits\ncluster: {}\n",
        "2:1: cluster: is distlaunch's own format; --config takes Google's",
    ),
    "a slip at the top": (
        "workerPoolSpec: []\n",
        f"1:1: workerPoolSpec: expected {SHAPES}; did you mean 'workerPoolSpecs'?",
    ),
    "a variable that is not set": (
        SPEC + "network: ${NOT_SET_HERE}\n",
        "3:10: ${NOT_SET_HERE}: NOT_SET_HERE is not set; export NOT_SET_HERE=…, or write",
    ),
    "a key in both spellings": (
        SPEC + "base_output_directory: {}\nbaseOutputDirectory: {}\n",
        "4:1: baseOutputDirectory: conflicts with base_output_directory; expected one",
    ),
    "unknown fields": (
        "workerPoolSpecs:\n- machine_spec: {machine_tpe: x, zone: y}\n  replicas: 1\n",
        "2:18: workerPoolSpecs[0].machine_spec.machine_tpe: unknown field; did you mean "
        "'machine_type'?",
        "2:34: workerPoolSpecs[0].machine_spec.zone: unknown field; known here: machineType, "
        "acceleratorType, acceleratorCount, gpuPartitionSize, tpuTopology, reservationAffinity",
        "3:3: workerPoolSpecs[0].replicas: unknown field; did you mean 'replicaCount'?",
    ),
    "values": (
        "workerPoolSpecs:\n- replicaCount: one\n"
        "- machineSpec: {acceleratorCount: 3000000000, acceleratorType: nvidia-tesla-t4}\n"
        "scheduling: {timeout: 2h, strategy: spot}\n",
        "2:17: workerPoolSpecs[0].replicaCount: expected a whole number of 64 bits, got 'one'",
        "3:35: workerPoolSpecs[1].machineSpec.acceleratorCount: expected a whole number of 32",
        "3:64: workerPoolSpecs[1].machineSpec.acceleratorType: expected one of 18 names, got "
        "'nvidia-tesla-t4'; did you mean 'NVIDIA_TESLA_T4'?",
        "4:23: scheduling.timeout: expected a duration in seconds, such as 3600s, got '2h'",
        "4:37: scheduling.strategy: expected ON_DEMAND, LOW_COST, STANDARD, SPOT or FLEX_START, "
        "got 'spot'; did you mean 'SPOT'?",
    ),
    "a container and a package": (
        pool(containerSpec={}, pythonPackageSpec={}),
        "1:63: workerPoolSpecs[0].pythonPackageSpec: conflicts with containerSpec; expected one",
    ),
    "no chief": (
        "workerPoolSpecs: [{}, {replicaCount: 1}]\n",
        "1:18: workerPoolSpecs: no chief; expected a first pool with one machine",
    ),
    "two chiefs": (
        "workerPoolSpecs: [{replicaCount: 2}]\n",
        "1:34: workerPoolSpecs[0].replicaCount: expected 1, as the first pool is the chief, got 2",
    ),
    # What would be something else than it looks, in a terminal, a label's query or a shell
    "text": (
        'displayName: "a\\nb"\nlabels: {Team: a, b: "c\\" OR labels.x:*"}\n'
        f"jobSpec: {{workerPoolSpecs: [{CHIEF}]}}\n",
        "1:14: displayName: expected text in one line, got 'a\\nb'",
        f"2:16: labels.Team: {LABEL}, a letter first, got 'Team'",
        f"2:22: labels.b: {LABEL}, got 'c\" OR labels.x:*'",
    ),
    "a container": (
        pool(containerSpec={"imageUri": "a/b:1\nRUN x", "env": [{"name": "A=b;"}]}),
        "1:72: workerPoolSpecs[0].containerSpec.imageUri: expected an image such as HOST/PATH:TAG,",
        "1:105: workerPoolSpecs[0].containerSpec.env[0].name: expected a variable name such as",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_all_problems_are_reported_at_once(tmp_path, refuses, name):
    text, *starts = BROKEN[name]
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with refuses(file, *starts):
        load_job(tmp_path, config=file)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: path.mkdir(), "not a file; expected text in YAML"),
        (lambda path: path.symlink_to("nowhere"), "broken symlink; fix or remove it"),
        (lambda path: None, "no such file"),
    ],
)
def test_unreadable_files(tmp_path, make, line):
    file = tmp_path / "config.yaml"
    make(file)
    with pytest.raises(DistlaunchError) as error:
        load_job(tmp_path, config=file)
    assert str(error.value) == f"{file}: {line}"
