"""distlaunch.yaml: valid files are read, and every problem has its location."""

from __future__ import annotations

import string

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlaunch.errors import DistlaunchError, JobFileError
from distlaunch.job.load import load_job_file
from distlaunch.job.model import (
    ChoiceParameter,
    Cluster,
    Image,
    Job,
    Machine,
    Pool,
    RangeParameter,
    Scheduling,
    Tuning,
)
from distlaunch.job.overrides import job_data
from distlaunch.job.schema import JobSection

SMALLEST = "name: digits\ncluster: {chief: {machine: n1-standard-4}}\n"

WHOLE = """\
name: digits
bucket: gs://my-bucket/
args: [--epochs=5, 7, no, 012]
image: {repository: us-central1-docker.pkg.dev/p/r/digits, base: "python:3.12-slim", include: [a]}
cluster:
  chief: &machine {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 2}}
  workers: {<<: *machine, count: 3}
  parameter_servers: {machine: n1-highmem-2}
  evaluators: {machine: n1-standard-4, count: 0}
scheduling: {strategy: FLEX_START, timeout: 1d12h, max_wait: 90m}
env: {LOG_LEVEL: on, WHEN: 2026-11-21, EMPTY: ''}
labels: {team: vision, run: 7}
service_account: trainer@my-project.iam.gserviceaccount.com
tuning:
  metric: val_accuracy
  goal: maximize
  trials: 12
  parallel_trials: 3
  algorithm: random
  parameters:
    learning-rate: {type: double, min: 1e-4, max: 0.1, scale: log}
    layers: {type: integer, min: 1, max: 4}
    optimizer: {values: [sgd, adam]}
    rate: {type: double, values: [0.1, 1], scale: log}
vertex:
  trialJobSpec: {enable_web_access: yes, protected_artifact_location_id: 2026-11-21}
"""


def read(folder, text: str) -> Job:
    (folder / "distlaunch.yaml").write_text(text, encoding="utf-8")
    return load_job_file(folder / "distlaunch.yaml")


def problems(folder, text: str) -> list[str]:
    with pytest.raises(JobFileError) as error:
        read(folder, text)
    return [line.removeprefix(f"{folder}/distlaunch.yaml:") for line in error.value.lines]


def test_everything_is_read(tmp_path):
    gpus = Machine("n1-standard-8", "NVIDIA_TESLA_T4", 2)
    servers, evaluators = Pool(Machine("n1-highmem-2")), Pool(Machine("n1-standard-4"), 0)
    parameters = {
        "learning-rate": RangeParameter(1e-4, 0.1, scale="log"),
        "layers": RangeParameter(1, 4, is_integer=True),
        "optimizer": ChoiceParameter(("sgd", "adam")),
        "rate": ChoiceParameter(("0.1", "1"), is_numeric=True, scale="log"),
    }
    assert read(tmp_path, WHOLE) == Job(
        name="digits",
        bucket="gs://my-bucket",
        args=("--epochs=5", "7", "no", "012"),
        image=Image("us-central1-docker.pkg.dev/p/r/digits", "python:3.12-slim", include=("a",)),
        cluster=Cluster(Pool(gpus), Pool(gpus, 3), servers, evaluators),
        scheduling=Scheduling("FLEX_START", timeout=36 * 3600, max_wait=90 * 60),
        env={"LOG_LEVEL": "on", "WHEN": "2026-11-21", "EMPTY": ""},
        labels={"team": "vision", "run": "7"},
        service_account="trainer@my-project.iam.gserviceaccount.com",
        web_access=True,
        tuning=Tuning("val_accuracy", "maximize", parameters, 12, 3, "random"),
        vertex={
            "trialJobSpec": {"enableWebAccess": True, "protectedArtifactLocationId": "2026-11-21"}
        },
    )


@pytest.mark.parametrize("text", [SMALLEST, WHOLE])
def test_a_job_is_written_as_sections_and_read_back(tmp_path, text):
    job = read(tmp_path, text)
    assert Job(**dict(JobSection.model_validate(job_data(job)))) == job


def test_a_name_and_a_chief_are_enough_in_a_file_from_a_windows_editor(tmp_path):
    empty = "args:\nenv:\nlabels:\nimage:\nscheduling:\nvertex:\n"
    text = "\ufeff" + (SMALLEST + empty).replace("\n", "\r\n")
    assert read(tmp_path, text) == Job("digits", Cluster(Pool(Machine("n1-standard-4"))))
    both = "env: {A: 1, <<: [{A: 2, B: 3}, {B: 4, C: 5}]}\n"
    assert read(tmp_path, SMALLEST + both).env == {"A": "1", "B": "3", "C": "5"}


def test_aliases_that_multiply_where_google_allows_it(tmp_path):
    laughs = "vertex:\n  studySpec:\n    parameters:\n    - &a0 {parameterId: x}\n"
    for n in range(1, 40):
        children = ", ".join([f"{{parameterSpec: *a{n - 1}}}"] * 9)
        laughs += f"    - &a{n} {{parameterId: x, conditionalParameterSpecs: [{children}]}}\n"
    assert problems(tmp_path, SMALLEST + laughs)[-1].endswith("vertex: too large to be a job")


def test_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "distlaunch.yaml"
    line = r"^distlaunch\.yaml: no such file; 'distlaunch init' creates one$"
    with pytest.raises(DistlaunchError, match=line):
        load_job_file(file)


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
names = st.text(string.ascii_lowercase + string.digits + "_-", max_size=62).map("a{}".format)
machines = st.fixed_dictionaries(
    {"machine": st.sampled_from(["n1-standard-4", "a2-highgpu-1g"])},
    optional={"accelerator": st.just({"type": "NVIDIA_TESLA_T4", "count": 2})},
)
pools = st.tuples(machines, st.integers(0, 99)).map(lambda pair: pair[0] | {"count": pair[1]})
files = st.fixed_dictionaries(
    {
        "name": names,
        "cluster": st.fixed_dictionaries(
            {"chief": machines}, optional={"workers": pools, "evaluators": pools}
        ),
    },
    optional={
        "args": st.lists(words | st.integers() | st.booleans(), max_size=5),
        "env": st.dictionaries(names.map(lambda name: name.replace("-", "_")), words, max_size=3),
        "labels": st.dictionaries(names, names, max_size=3),
    },
)


def written(value: object) -> str:
    """Return a scalar as YAML writes it."""
    return value if isinstance(value, str) else yaml.safe_dump(value).splitlines()[0]


@given(content=files, flow=st.sampled_from([True, False, None]))
def test_what_is_dumped_is_read_back(tmp_path_factory, content, flow):
    folder = tmp_path_factory.getbasetemp()
    text = yaml.safe_dump(content, allow_unicode=True, default_flow_style=flow)
    job = read(folder, text)
    assert job.name == content["name"]
    assert job.args == tuple(written(word) for word in content.get("args", []))
    assert job.env == content.get("env", {})
    assert job.labels == content.get("labels", {})
    counts = [pool.get("count", 1) for pool in content["cluster"].values()]
    assert job.cluster.task_count == sum(counts)


@given(content=files, width=st.integers(20, 120), data=st.data())
def test_a_problem_has_the_location_of_its_value(tmp_path_factory, content, width, data):
    marker = "WRONG-" + "x" * 20
    sections = [content["cluster"][key] for key in content["cluster"]]
    data.draw(st.sampled_from(sections))["machine"] = marker
    text = yaml.safe_dump(content, allow_unicode=True, width=width, sort_keys=False)
    at = text.index(marker)
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    (problem,) = problems(tmp_path_factory.getbasetemp(), text)
    assert problem.startswith(f"{line}:{column}: cluster.")
    assert problem.endswith(
        f"machine: expected a machine type such as n1-standard-8, got {marker!r}"
    )


def tuned(folder, parameter: str, more: str = "goal: maximize") -> Tuning:
    text = f"name: a\ncluster: {{chief: {{machine: n1-standard-4}}}}\ntuning: {{metric: a, {more},"
    tuning = read(folder, f"{text} trials: 2, parameters: {{x: {parameter}}}}}\n").tuning
    assert tuning
    return tuning


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        ("{min: 1, max: 5}", RangeParameter(1, 5, is_integer=True)),
        ("{min: 1.0, max: 5}", RangeParameter(1, 5)),
        ("{min: 1e-4, max: 1, scale: LOG}", RangeParameter(1e-4, 1, scale="log")),
        ("{type: DOUBLE, min: 1, max: 5}", RangeParameter(1, 5)),
        ("{type: INTEGER, min: 1, max: 5}", RangeParameter(1, 5, is_integer=True)),
        ("{min: 0.5, max: 9, scale: UNIT_LOG_SCALE}", RangeParameter(0.5, 9, scale="log")),
        (
            "{min: 1.0, max: 9, scale: UNIT_REVERSE_LOG_SCALE}",
            RangeParameter(1, 9, scale="reverse_log"),
        ),
        ("{min: 0.1, max: 9, scale: UNIT_LINEAR_SCALE}", RangeParameter(0.1, 9)),
        ("{type: DISCRETE, values: [1, 2]}", ChoiceParameter(("1", "2"), is_numeric=True)),
        ("{type: CATEGORICAL, values: [a, b]}", ChoiceParameter(("a", "b"))),
        ("{values: [1, 2], scale: log}", ChoiceParameter(("1", "2"), is_numeric=True, scale="log")),
        ("{values: [1, 2]}", ChoiceParameter(("1", "2"))),
    ],
)
def test_a_tuned_parameter_s_type_follows_from_its_numbers(tmp_path, parameter, expected):
    for goal, algorithm in (("maximize", "random"), ("MAXIMIZE", "RANDOM_SEARCH")):
        tuning = tuned(tmp_path, parameter, f"goal: {goal}, algorithm: {algorithm}")
        assert tuning == Tuning("a", "maximize", {"x": expected}, 2, algorithm="random")
    tuning = tuned(tmp_path, parameter, "goal: Minimize, algorithm: GRID_SEARCH")
    assert (tuning.goal, tuning.algorithm) == ("minimize", "grid")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.integers(-1000, 1000), st.integers(0, 1000), st.booleans())
def test_a_range_is_of_integers_where_both_ends_are(tmp_path, low, size, is_integer):
    ends = (low, low + size) if is_integer else (float(low), low + size)
    parameter = tuned(tmp_path, f"{{min: {ends[0]}, max: {ends[1]}}}").parameters["x"]
    assert parameter == RangeParameter(low, low + size, is_integer=is_integer)
