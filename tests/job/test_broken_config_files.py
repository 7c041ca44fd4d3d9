"""Broken files in Vertex AI's format, and every line that is reported for each."""

from __future__ import annotations

import json

import pytest

from distlaunch.errors import DistlaunchError, JobFileError
from distlaunch.job.load import load_job

CHIEF = "{machineSpec: {machineType: n1-standard-4}, replicaCount: 1}"
SPEC = f"workerPoolSpecs:\n- {CHIEF}\n"
SHAPES = "trainingInput, workerPoolSpecs, jobSpec or studySpec at the top"


def pool(**fields: object) -> str:
    """Return a spec with one pool, in the one line that JSON is."""
    return json.dumps({"workerPoolSpecs": [{"replicaCount": 1, **fields}]}) + "\n"


BROKEN = {
    "a job file of our own": (
        "name: digits\ncluster: {}\n",
        ["2:1: cluster: is distlaunch's own format; --config takes Google's"],
    ),
    "a slip at the top": (
        "workerPoolSpec: []\n",
        [f"1:1: workerPoolSpec: expected {SHAPES}; did you mean 'workerPoolSpecs'?"],
    ),
    "a variable that is not set": (
        SPEC + "network: ${NOT_SET_HERE}\n",
        [
            "3:10: ${NOT_SET_HERE}: NOT_SET_HERE is not set; export NOT_SET_HERE=…, or write "
            "$${NOT_SET_HERE} to keep the text"
        ],
    ),
    "a key in both spellings": (
        SPEC + "base_output_directory: {}\nbaseOutputDirectory: {}\n",
        ["4:1: baseOutputDirectory: conflicts with base_output_directory; expected one"],
    ),
    "unknown fields": (
        "workerPoolSpecs:\n- machineSpec: {machinetype: x, zone: y}\n  replicas: 1\nschedule: {}\n",
        [
            "2:17: workerPoolSpecs[0].machineSpec.machinetype: unknown field; did you mean "
            "'machineType'?",
            "2:33: workerPoolSpecs[0].machineSpec.zone: unknown field; known here: machineType, "
            "acceleratorType, acceleratorCount, gpuPartitionSize, tpuTopology, reservationAffinity",
            "3:3: workerPoolSpecs[0].replicas: unknown field; did you mean 'replicaCount'?",
            "4:1: schedule: unknown field; did you mean 'scheduling'?",
        ],
    ),
    "an accelerator": (
        pool(machineSpec={"acceleratorType": "nvidia-tesla-t4"}),
        [
            "1:77: workerPoolSpecs[0].machineSpec.acceleratorType: expected one of 18 names, got "
            "'nvidia-tesla-t4'; did you mean 'NVIDIA_TESLA_T4'?"
        ],
    ),
    "times": (
        SPEC + "scheduling: {timeout: 2h, maxWaitDuration: 3600}\n",
        [
            "3:23: scheduling.timeout: expected a duration in seconds, such as 3600s, got '2h'",
            "3:44: scheduling.maxWaitDuration: expected a duration in seconds, such as 3600s, got "
            "'3600'",
        ],
    ),
    "numbers": (
        "workerPoolSpecs:\n- replicaCount: one\n- replicaCount: 1.5\n"
        "- machineSpec: {acceleratorCount: 3000000000}\n",
        [
            "2:17: workerPoolSpecs[0].replicaCount: expected a whole number of 64 bits, got 'one'",
            "3:17: workerPoolSpecs[1].replicaCount: expected a whole number of 64 bits, got '1.5'",
            "4:35: workerPoolSpecs[2].machineSpec.acceleratorCount: expected a whole number of "
            "32 bits, got '3000000000'",
        ],
    ),
    "a container and a package": (
        pool(containerSpec={}, pythonPackageSpec={}),
        ["1:63: workerPoolSpecs[0].pythonPackageSpec: conflicts with containerSpec; expected one"],
    ),
    "no chief": (
        "workerPoolSpecs: [{}, {replicaCount: 1}]\n",
        ["1:18: workerPoolSpecs: no chief; expected a first pool with one machine"],
    ),
    "two chiefs": (
        "workerPoolSpecs: [{replicaCount: 2}]\n",
        [
            "1:34: workerPoolSpecs[0].replicaCount: expected 1, as the first pool is the chief, "
            "got 2"
        ],
    ),
    "a search": (
        "trialJobSpec: {workerPoolSpecs: [{replicaCount: 1}]}\nstudySpec:\n"
        "  algorithm: BAYES\n  metrics: [{metricId: a, goal: MAX}]\n"
        "  parameters: [{parameterId: x, scaleType: LOG, "
        "doubleValueSpec: {min: 1, maxValue: x}}]\n",
        [
            "3:14: studySpec.algorithm: expected GRID_SEARCH or RANDOM_SEARCH, got 'BAYES'",
            "4:33: studySpec.metrics[0].goal: expected MAXIMIZE or MINIMIZE, got 'MAX'",
            "5:44: studySpec.parameters[0].scaleType: expected UNIT_LINEAR_SCALE, UNIT_LOG_SCALE "
            "or UNIT_REVERSE_LOG_SCALE, got 'LOG'",
            "5:67: studySpec.parameters[0].doubleValueSpec.min: unknown field; known here: "
            "minValue, maxValue, defaultValue",
            "5:85: studySpec.parameters[0].doubleValueSpec.maxValue: expected a number, got 'x'",
        ],
    ),
    # What would be something else than it looks, in a terminal, a label's query or a shell
    "a line break in a name": (
        f'displayName: "a\\nb"\njobSpec: {{workerPoolSpecs: [{CHIEF}]}}\n',
        ["1:14: displayName: expected text in one line, got 'a\\nb'"],
    ),
    "labels": (
        'labels: {Team: a, b: "c\\" OR labels.x:*", 1: x, d: "e\\nf"}\n'
        f"jobSpec: {{workerPoolSpecs: [{CHIEF}]}}\n",
        [
            "1:16: labels.Team: expected at most 63 lower-case letters, digits, _ and -, a letter "
            "first, got 'Team'",
            "1:22: labels.b: expected at most 63 lower-case letters, digits, _ and -, got "
            "'c\" OR labels.x:*'",
            "1:46: labels.1: expected at most 63 lower-case letters, digits, _ and -, a letter "
            "first, got '1'",
            "1:52: labels.d: expected at most 63 lower-case letters, digits, _ and -, got 'e\\nf'",
        ],
    ),
    "an image": (
        pool(containerSpec={"imageUri": "a/b:1\nRUN x"}),
        [
            "1:72: workerPoolSpecs[0].containerSpec.imageUri: expected an image such as "
            "HOST/PATH:TAG, "
            "got 'a/b:1\\nRUN x'"
        ],
    ),
    "a variable's name": (
        pool(containerSpec={"env": [{"name": "A=b;", "value": "x"}]}),
        [
            "1:77: workerPoolSpecs[0].containerSpec.env[0].name: expected a variable name "
            "such as LOG_LEVEL, got 'A=b;'",
        ],
    ),
}


def problem_lines(tmp_path, content: bytes) -> tuple[str, ...]:
    file = tmp_path / "config.yaml"
    file.write_bytes(content)
    with pytest.raises(JobFileError) as error:
        load_job(tmp_path, config=file)
    return tuple(line.removeprefix(f"{file}:") for line in error.value.lines)


@pytest.mark.parametrize("name", BROKEN)
def test_all_problems_are_reported_at_once(tmp_path, name):
    text, lines = BROKEN[name]
    assert problem_lines(tmp_path, text.encode()) == tuple(lines)
    assert all(line.isprintable() for line in lines)


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
