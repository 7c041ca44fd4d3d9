"""Broken job files, and every line that is reported for each."""

from __future__ import annotations

import json
from textwrap import dedent
from unittest.mock import Mock

import pytest

from distlaunch.errors import DistlaunchError, JobFileError
from distlaunch.job import validation, yaml_document
from distlaunch.job.load import load_job, load_job_file
from distlaunch.job.vertex import proto

SMALLEST = "name: digits\ncluster: {chief: {machine: n1-standard-4}}\n"

PATH = "expected a path below the project folder, such as data/labels.txt, got"
BROKEN = {
    "nothing": ("", "1:1: expected keys with values, such as 'name: digits'"),
    "a tab": ("name: digits\n\tcluster: 1\n", "2:1: not YAML: a tab where spaces are needed"),
    "code": (
        SMALLEST + "args: [!!python/object/apply:os.system [true]]\n",
        "3:8: unsupported YAML tag !!python/object/apply:os.system",
        "3:8: args.0: expected text, got a list",
    ),
    "an alias of itself": (
        SMALLEST + "args: &a [*a]\n",
        "3:7: an alias that contains itself",
        "3:7: args.0: expected text, got nothing",
    ),
    "a merge of text": (
        SMALLEST + "env: {<<: yes}\n",
        "3:11: <<: expected an alias of a section, such as *name",
    ),
    "too deep": (SMALLEST + "vertex: " + "[" * 5000, "1:1: nested too deeply"),
    "a key twice": (SMALLEST + "name: a\n", "3:1: name: duplicate key (first defined on line 1)"),
    "machines": (
        dedent("""\
            name: digits
            cluster:
              chief: {machine: N1, accelerator: {type: t4, count: 0}}
              workers: {machine: n1-standard-4, count: three}
              parameter_servers: {count: -1}
              evaluators: {machine: n1-standard-4, count: 1.5}
            """),
        "3:20: cluster.chief.machine: expected a machine type such as n1-standard-8, got 'N1'",
        "3:44: cluster.chief.accelerator.type: expected an accelerator such as NVIDIA_TESLA_T4,",
        "3:55: cluster.chief.accelerator.count: expected a whole number of 1 or more, got '0'",
        "4:44: cluster.workers.count: expected a whole number, got 'three'",
        "5:3: cluster.parameter_servers.machine: is missing",
        "5:30: cluster.parameter_servers.count: expected a whole number of 0 or more, got '-1'",
        "6:47: cluster.evaluators.count: expected a whole number, got '1.5'",
    ),
    "names": (
        dedent("""\
            name: Digits 1
            cluster: {chief: {machine: n1-standard-4}}
            project: My Project
            region: us
            bucket: s3://my-bucket
            module: trainer/task.py
            service_account: trainer
            """),
        "1:7: name: expected at most 63 of a-z, 0-9, _ and -, a letter first, such as digits, got",
        "3:10: project: expected a project id such as my-project-1234, got 'My Project'",
        "4:9: region: expected a region such as us-central1, got 'us'",
        "5:9: bucket: expected a bucket such as gs://my-bucket, got 's3://my-bucket'",
        "6:9: module: expected a Python module such as trainer.task, got 'trainer/task.py'",
        "7:18: service_account: expected an account such as",
    ),
    "an image": (
        SMALLEST
        + dedent("""\
            image:
              repository: digits:latest
              base: "python:3.12\\nRUN curl evil | sh"
              requirements: /etc/passwd
              include: [data, ../secrets, a/../../b, "a\\nb", ~]
              dockerfile: ''
            """),
        "4:15: image.repository: expected an image without a tag, such as",
        "5:9: image.base: expected an image such as python:3.12-slim, got 'python:3.12\\nRUN curl",
        f"6:17: image.requirements: {PATH} '/etc/passwd'",
        f"7:19: image.include.1: {PATH} '../secrets'",
        f"7:31: image.include.2: {PATH} 'a/../../b'",
        f"7:42: image.include.3: {PATH} 'a\\nb'",
        f"7:50: image.include.4: {PATH} nothing",
        f"8:15: image.dockerfile: {PATH} ''",
    ),
    "google's fields": (
        SMALLEST
        + "vertex:\n  jobSpec: {enableWebAccess: maybe}\n  encryption_spec: {kms_key: a}\n",
        "4:30: vertex.jobSpec.enableWebAccess: expected true or false, got 'maybe'",
        "5:21: vertex.encryption_spec.kms_key: unknown field; did you mean 'kms_key_name'?",
    ),
    "variables": (
        SMALLEST + "env: {9: a, TF_CONFIG: b, AIP_MODEL_DIR: c}\n",
        "3:7: env.9: expected a variable's name, such as LOG_LEVEL, got '9'",
        "3:13: env.TF_CONFIG: expected another name, as this variable is set for each task, got",
        "3:27: env.AIP_MODEL_DIR: expected another name, as this variable is set for each task,",
    ),
    "labels": (
        SMALLEST + "labels: {Team: a, long: " + "x" * 64 + "}\n",
        "3:10: labels.Team: expected at most 63 of a-z, 0-9, _ and -, a letter first, got 'Team'",
        "3:25: labels.long: expected at most 63 of a-z, 0-9, _ and -, got '" + "x" * 39 + "…'",
    ),
    "scheduling": (
        SMALLEST + "scheduling: {strategy: spot, timeout: 12}\n",
        "3:24: scheduling.strategy: expected STANDARD, SPOT or FLEX_START, got 'spot'; did you "
        "mean 'SPOT'?",
        "3:39: scheduling.timeout: expected a duration with its unit, such as 90s, 30m, 12h or 7d,",
    ),
    "tuning": (
        SMALLEST
        + dedent("""\
            tuning:
              metric: accuracy
              goal: up
              trials: 0
              parameters:
                a: {type: double, min: x, max: 1}
                b: {mn: 1}
                c: {values: []}
                d: {type: integer, min: 3, max: 2}
                e: {type: double, min: nan, max: inf}
                f: {type: double, values: [1, many]}
                g: {type: integer, values: [1]}
                h: {values: [1, a], scale: log}
                i: {type: integer, min: 0.5, max: 2}
            """),
        "5:9: tuning.goal: expected maximize or minimize, got 'up'",
        "6:11: tuning.trials: expected a whole number of 1 or more, got '0'",
        "8:28: tuning.parameters.a.min: expected a number, got 'x'",
        "9:9: tuning.parameters.b.mn: unknown key; did you mean 'min'?",
        "10:17: tuning.parameters.c.values: expected one or more, got an empty list",
        "11:8: tuning.parameters.d: expected a min that is not above max, got a section",
        "12:28: tuning.parameters.e.min: expected a number, got 'nan'",
        "12:38: tuning.parameters.e.max: expected a number, got 'inf'",
        "13:8: tuning.parameters.f: expected numbers as values, such as [0.1, 0.01], for the type",
        "14:8: tuning.parameters.g: expected either min and max or a list of values, got a",
        "15:8: tuning.parameters.h: expected numbers as values with a scale, or no scale, got a",
        "16:8: tuning.parameters.i: expected integers as min and max of the type integer, got a",
    ),
}


CHIEF = "{machineSpec: {machineType: n1-standard-4}, replicaCount: 1}"
SPEC = f"workerPoolSpecs:\n- {CHIEF}\n"
SHAPES = "trainingInput, workerPoolSpecs, jobSpec or studySpec at the top"


def pool(**fields: object) -> str:
    """Return a spec with one pool, in the one line that JSON is."""
    return json.dumps({"workerPoolSpecs": [{"replicaCount": 1, **fields}]}) + "\n"


LABEL = "expected at most 63 lower-case letters, digits, _ and -"
BROKEN_CONFIG = {
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
    file = tmp_path / "distlaunch.yaml"
    file.write_text(text)
    with refuses(file, *starts):
        load_job_file(file)


@pytest.mark.parametrize("name", BROKEN_CONFIG)
def test_all_problems_of_google_s_file_are_reported_at_once(tmp_path, refuses, name):
    text, *starts = BROKEN_CONFIG[name]
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with refuses(file, *starts):
        load_job(tmp_path, config=file)


@pytest.mark.parametrize(
    ("before", "path", "module"),
    [("", "", validation), ("vertex:\n", "vertex.", proto)],
    ids=["keys", "fields"],
)
def test_many_unknown_keys_take_bounded_work(tmp_path, monkeypatch, before, path, module):
    hint, pairs = Mock(wraps=module.did_you_mean), Mock(wraps=yaml_document._pairs)
    monkeypatch.setattr(module, "did_you_mean", hint)
    monkeypatch.setattr(yaml_document, "_pairs", pairs)
    indent = " " if before else ""
    keys = "".join(f"{indent}key{number}: x\n" for number in range(250))
    file = tmp_path / "distlaunch.yaml"
    file.write_text(SMALLEST + before + keys)
    with pytest.raises(JobFileError) as error:
        load_job_file(file)
    *lines, last = error.value.lines
    assert [line.split(": ")[1] for line in lines] == [f"{path}key{n}" for n in range(100)]
    assert last == f"{file}: and 150 more problems"
    assert hint.call_count == 100
    assert pairs.call_count < 10  # each section is looked through once, not for each problem


def test_a_file_too_large_for_a_job_is_not_read(tmp_path):
    file = tmp_path / "distlaunch.yaml"
    file.write_text(SMALLEST + "# " + "x" * 999_900 + "\n")
    assert load_job_file(file).name == "digits"
    file.write_text(SMALLEST + "# " + "x" * 1_000_000 + "\n")
    with pytest.raises(DistlaunchError) as error:
        load_job_file(file)
    assert str(error.value) == (
        f"{file}: too large: {file.stat().st_size:,} bytes, expected at most 1,000,000"
    )


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: path.mkdir(), "not a file; expected text in YAML"),
        (lambda path: path.symlink_to("nowhere"), "broken symlink; fix or remove it"),
        (lambda path: None, "no such file; correct --config: it is relative to the current folder"),
    ],
)
def test_unreadable_files(tmp_path, make, line):
    file = tmp_path / "config.yaml"
    make(file)
    with pytest.raises(DistlaunchError) as error:
        load_job(tmp_path, config=file)
    assert str(error.value) == f"{file}: {line}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "name: a\ncluster\nlabels: {}\n",
            "2:1: not YAML: a key without ':' and value; write it as",
        ),
        ("name: a\nlabels: {a: b}}\n", "2:15: not YAML: '}' without what it ends; remove it, or"),
        ("name: a\nargs: [a]]\n", "2:10: not YAML: ']' without what it ends; remove it, or"),
    ],
)
def test_text_that_is_not_yaml_is_explained_at_its_line(tmp_path, text, problem):
    (tmp_path / "distlaunch.yaml").write_text(text)
    with pytest.raises(JobFileError) as error:
        load_job(tmp_path)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f"- {CHIEF}\n",
            "1:1: expected keys with values, such as 'name: digits', got a list; ",
        ),
        (json.dumps([{"machine_spec": {}}]), 'the list (in JSON: {"workerPoolSpecs": […]})'),
        ("displayName: a\n" + SPEC, "1:1: displayName: is a field beside jobSpec; put workerPool"),
        ("display_name: a\n" + SPEC, "put workerPoolSpecs under jobSpec:"),
        ("labels: {a: b}\n" + SPEC, "1:1: labels: is a field beside jobSpec; put workerPoolSpecs"),
        (
            SPEC.replace("}, rep", "}, containerSpec: {imageUri: a, env: {WANDB: k3y}}, rep"),
            "env: expected a list, such as - {name: WANDB, value: …}, got a section",
        ),
    ],
)
def test_google_s_form_is_named_where_another_is_written(tmp_path, text, problem):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(JobFileError) as error:
        load_job(tmp_path, config=tmp_path / "config.yaml")
    assert problem in str(error.value)
    assert "k3y" not in str(error.value)
