"""The JSON schema of distlaunch.yaml accepts what the reader of the file accepts."""

from __future__ import annotations

import json

import pytest
import yaml
from jsonschema import Draft202012Validator

from distlaunch.errors import JobFileError
from distlaunch.job.json_schema import schema, schema_text
from distlaunch.job.load import load_job_file
from distlaunch.job.schema import JobSection
from distlaunch.scaffold import plan

SMALLEST = "name: digits\ncluster: {chief: {machine: n1-standard-4}}\n"
GOOD = {
    "scalars": "args: [5, no, 1.5]\nenv: {A: 1, B: true}\nlabels: {run: 7}\ntensorboard: 123\n",
    "empty sections": "args:\nenv:\nlabels:\nimage:\nscheduling:\nvertex:\nreduction_server:\n",
    "sections": "scheduling: {timeout: 1d12h}\nimage: {base: 'a:1', include: [data]}\n",
    "tuning": "tuning: {metric: a, goal: maximize, trials: 3, parameters: {x: {values: [a]}}}\n",
}
BAD = {
    "an unknown key": "lables: {}\n",
    "an inner unknown key": "image: {bse: x}\n",
    "a name": "region: us\n",
    "a variable": "env: {TF_CONFIG: x}\n",
    "a label": "labels: {Team: x}\n",
    "no time": "scheduling: {timeout: ''}\n",
    "an enum": "scheduling: {strategy: spot}\n",
    "a path": "image: {include: [../x]}\n",
    "a list": "args: --epochs=5\n",
    "no replicas": "reduction_server: {replicas: 0}\n",
    "a count": "tuning: {metric: a, goal: maximize, trials: 0, parameters: {x: {values: [a]}}}\n",
}


def verdicts(folder, text: str) -> tuple[bool, bool]:
    file = folder / "distlaunch.yaml"
    file.write_text(text)
    by_schema = Draft202012Validator(schema()).is_valid(yaml.safe_load(text))
    try:
        load_job_file(file)
    except JobFileError:
        return by_schema, False
    return by_schema, True


def test_it_is_a_schema_of_every_key_and_of_what_init_writes(tmp_path):
    Draft202012Validator.check_schema(json.loads(schema_text()))
    assert schema()["properties"].keys() == JobSection.model_fields.keys()
    plan(tmp_path, "digits").write(tmp_path)
    assert verdicts(tmp_path, (tmp_path / "distlaunch.yaml").read_text()) == (True, True)


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_the_schema_and_the_reader_accept_the_same_files(tmp_path, name):
    is_good = name in GOOD
    assert verdicts(tmp_path, SMALLEST + (GOOD | BAD)[name]) == (is_good, is_good)
