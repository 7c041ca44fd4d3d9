from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from distlaunch.checks.data import hash_modules, load_datasets

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "summary.json").read_text())
ON_LAPTOP = "data-on-this-machine"


def test_facts_come_from_the_last_local_run(whole):
    plan, problems = whole.data()
    assert problems == []
    assert plan.lines() == [
        "1,437 examples in 5 files",
        "64 rows a step, 32 on each of 2 replicas; 23 steps an epoch, the last of 29",
    ]


def test_a_changed_project_has_unknown_data_and_the_cluster_is_checked(whole):
    whole.prepend("trainer/data.py", "\n")
    plan, problems = whole.data()
    assert problems == []
    assert plan.lines() == [
        "unknown (run 'distlaunch check --run' or 'distlaunch local'): trainer/data.py or a "
        "module beside it has changed since the last local run",
        "64 rows a step, 32 on each of 2 replicas",
    ]
    assert whole.data_codes(whole.cluster(7)) == [("error", "shards-not-divided")]
    whole.write("trainer/data.py", "def training():\n    return load()\n")
    assert whole.data_codes(whole.cluster(7)) == []


def test_modules_have_the_hash_of_the_golden_file(tmp_path):
    for name, text in (("data.py", "A = 1\n"), ("task.py", ""), ("model.py", ""), ("b.py", "")):
        (tmp_path / name).write_text(text)
    assert hash_modules(tmp_path / "data.py") == GOLDEN["data_modules"]


def test_data_are_known_while_the_modules_and_the_files_are_unchanged(whole):
    def unknown():
        return load_datasets(whole.folder, whole.folder / "trainer/data.py")[1]

    file = whole.folder / "data/train-00000-of-00005.tfrecord"
    modified = file.stat().st_mtime_ns
    changed = "files of data/train-*.tfrecord have changed since the last local run"
    os.utime(file, ns=(0, modified + 1))
    assert unknown() == changed
    os.utime(file, ns=(0, modified))
    assert unknown() == ""
    whole.write("data/train-00005-of-00005.tfrecord", "")
    whole.write("trainer/model.py", "")
    assert unknown() == changed
    whole.write("trainer/config.py", "")
    changed = "trainer/data.py or a module beside it has changed since the last local run"
    assert unknown() == changed


def test_csv_files_of_the_last_run_are_known_until_they_are_newer(whole):
    whole.write("data/train.csv", "a,b\n1,2\n")
    whole.ran({"kind": "csv", "pattern": "data/train.csv", "examples": 800})
    plan, problems = whole.data()
    assert (problems, plan.lines()[0]) == ([], "800 examples")
    later = time.time() + 60
    os.utime(whole.folder / "data/train.csv", (later, later))
    assert "files of data/train.csv have changed since" in whole.data()[0].lines()[0]


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"data_modules": "", "data": {"training": []}}']
)
def test_a_newer_run_without_data_is_passed_over(whole, content):
    source, path = whole.folder / "trainer/data.py", ".distlaunch/local/20261126-130000"
    whole.write(f"{path}/summary.json", content)
    assert load_datasets(whole.folder, source)[0]["training"].examples == 1437
    for each in (whole.folder / ".distlaunch/local").glob("*0000/summary.json"):
        each.write_text(content)
    assert load_datasets(whole.folder, source) == (
        {},
        "not recorded by a run in .distlaunch/local yet",
    )


@pytest.fixture
def laptop(tmp_path):
    folder = tmp_path / "laptop"
    folder.mkdir()
    (folder / "a.tfrecord").write_bytes(b"x")
    return folder


def test_a_hard_coded_path_of_this_machine_is_an_error(whole, laptop):
    whole.ran_on(f"{laptop}/*.tfrecord", 70)
    plan, [problem] = whole.data()
    assert (problem.code, problem.severity) == (ON_LAPTOP, "error")
    assert problem.where == "trainer/data.py"
    assert f"gcloud storage cp {laptop}/*.tfrecord gs://my-bucket/digits/data/" in problem.remedy
    assert plan.examples == 70
    whole.ran_on(f"{whole.folder}/data/train-*.tfrecord", 400, 100, 500, 200, 237)
    assert whole.data_codes() == [("error", ON_LAPTOP)]


def test_a_path_outside_the_project_is_a_warning_where_the_container_may_have_it(whole, laptop):
    whole.ran_on(f"{laptop}/*.tfrecord", 70, argument="download()")
    assert whole.data_codes() == [("warning", ON_LAPTOP)]
    whole.ran_on(f"{laptop}/*.tfrecord", 70)
    assert whole.data_codes("image.base=eu.gcr.io/me/with-data:1") == [("warning", ON_LAPTOP)]
    whole.write("Dockerfile", f"FROM python:3.12\nCOPY laptop {laptop}\n")
    assert whole.data_codes() == []


def test_data_that_may_differ_in_the_cloud_raise_warnings(whole, laptop):
    for word in ("os.environ.get('DATA')", "Path('/gcs').exists()"):
        whole.ran_on(f"{laptop}/*.tfrecord", 1, more=f"DATA = {word}\n")
        assert whole.data_codes() == [("warning", ON_LAPTOP), ("warning", "data-too-few")]


def test_data_outside_the_image(whole):
    plan, [training, validation] = whole.data("image.include=[README.md]")
    assert training.code == validation.code == "data-not-in-image"
    assert "5 files in data that" in training.what
    assert "2 files in data that" in validation.what
    assert "image.include: [README.md, data]" in training.remedy
    assert plan.examples == 1437
    whole.write(".dockerignore", "data\n")
    _, problems = whole.data()
    assert all("!data at the end of .dockerignore" in each.remedy for each in problems)
    whole.write("Dockerfile", "FROM python:3.12\nRUN make data\nCOPY . /app\n")
    assert whole.data_codes() == []


def test_only_the_files_in_the_image_count(whole):
    files = "data/train-00000-of-00005.tfrecord, data/validation-00000-of-00002.tfrecord"
    plan, problems = whole.data(f"image.include=[{files}]")
    assert (plan.files, plan.examples, problems) == (1, 401, [])


def test_a_linked_folder_is_in_the_image_with_its_target(whole):
    (whole.folder / "linked").symlink_to("data")
    whole.ran_on("linked/train-*.tfrecord", 400, 100, 500, 200, 237)
    assert whole.data_codes("image.include=[linked, data]") == []
    assert whole.data_codes("image.include=[linked]") == [("error", "data-not-in-image")]


def test_too_few_examples(whole):
    whole.ran({"kind": "arrays", "examples": 3}, {"kind": "arrays", "examples": 0})
    _, [training, validation] = whole.data(whole.cluster(4))
    assert training.code == validation.code == "data-too-few"
    assert "cluster.workers.count: 2" in training.remedy
    assert "validation data contain no record" in validation.what


GPUS = "accelerator: {type: NVIDIA_TESLA_T4, count: %d}"
TUNING = "tuning={metric: loss, goal: minimize, trials: 2, parameters: {%s: {values: ['7']}}}"


@pytest.mark.parametrize(
    "overrides",
    [
        ("module=trainer.model",),
        ("args=[--batch-size=many]",),
        ("args=[--shards=0]",),
        ("args=[--batch-size]",),
        ("args=[--shards=7]", TUNING % "batch-size"),
        ("args=[--shards=7]", TUNING % "shards"),
        ("cluster={chief: {machine: cloud-tpu, accelerator: {type: TPU_V3, count: 8}}}",),
        (
            f"cluster={{chief: {{machine: n1-standard-8, {GPUS % 2}}}, "
            f"workers: {{machine: n1-standard-8, {GPUS % 1}}}}}",
        ),
    ],
)
def test_data_of_jobs_that_other_checks_refuse_or_that_differ_are_not_predicted(whole, overrides):
    assert whole.data(*overrides) == (None, [])


@pytest.mark.parametrize(
    ("tasks", "args", "remedy"),
    [
        (2, "", None),
        (7, "", None),
        (2, "--global-batch-size=64", "batch(64)"),
        (2, "--batch-size=32", "batch(64)"),
    ],
)
def test_the_batch_of_a_dataset_is_the_global_batch(whole, tasks, args, remedy):
    whole.ran({"kind": "dataset", "examples": 1437, "batch": 60})
    plan, problems = whole.data(whole.cluster(tasks), f"args=[{args}]")
    assert (plan.global_batch, plan.shards) == (60, None)
    assert [each.code for each in problems] == (["batch-clash"] if remedy else [])
    assert all(remedy in each.remedy and each.where == "trainer/data.py" for each in problems)
