from __future__ import annotations

from dataclasses import replace

import pytest

from distlaunch.job.model import Program, RangeParameter, Tuning

from .conftest import READ

ON_LAPTOP = "data-on-this-machine"


def test_facts_come_from_the_last_local_run(project):
    facts, problems = project.check()
    assert problems == []
    assert facts.lines() == (
        "1,437 examples in 5 files",
        "64 rows a step, 32 on each of 2 replicas; 23 steps an epoch, the last of 29",
    )
    assert facts.as_json() == {
        "files": 5,
        "examples": 1437,
        "is_all": True,
        "replicas": 2,
        "global_batch": 64,
        "steps_per_epoch": 23,
        "rows": (32, 32),
        "last_rows": 29,
        "shards": 12,
        "unknown": "",
    }


def test_a_changed_project_has_unknown_data_and_the_cluster_is_checked(project):
    source = project.folder / "trainer/data.py"
    source.write_text(f"{source.read_text()}\n")
    facts, problems = project.check()
    assert problems == []
    assert facts.lines() == (
        "unknown (run 'distlaunch check --run' or 'distlaunch local'): trainer/data.py or a "
        "module beside it has changed since the last local run",
        "64 rows a step, 32 on each of 2 replicas",
    )
    project.use_cluster(5)
    assert project.codes == [("error", "shards-not-divided")]
    project.write("trainer/data.py", "def training():\n    return load()\n")
    assert project.codes == []


def test_another_program_has_no_known_data(project):
    chief = replace(project.job.cluster.chief, program=Program(image="gcr.io/x/y"))
    bundled = project.job
    project.change(cluster=replace(project.job.cluster, chief=chief))
    assert project.check() == (None, [])
    project.job = replace(bundled, module="program.main")
    project.write("program/main.py", "")
    assert project.check() == (None, [])


@pytest.fixture
def laptop(tmp_path):
    folder = tmp_path / "laptop"
    folder.mkdir()
    (folder / "a.tfrecord").write_bytes(b"x")
    return folder


def test_a_hard_coded_path_of_this_machine_is_an_error(project, laptop):
    project.ran_on(f"{laptop}/*.tfrecord", 70)
    facts, [problem] = project.check()
    assert (problem.code, problem.severity, problem.where) == (
        ON_LAPTOP,
        "error",
        "trainer/data.py",
    )
    assert f"gcloud storage cp {laptop}/*.tfrecord gs://my-bucket/digits/data/" in problem.remedy
    assert facts.plan.examples == 70
    project.ran_on(f"{project.folder}/data/train-*.tfrecord", 400, 100, 500, 200, 237)
    assert project.codes == [("error", ON_LAPTOP)]


def test_a_path_outside_the_project_is_a_warning_where_the_container_may_have_it(project, laptop):
    downloaded = READ.replace("{pattern!r}", "download()")
    project.ran_on(f"{laptop}/*.tfrecord", 70, text=downloaded)
    assert project.codes == [("warning", ON_LAPTOP)]
    project.ran_on(f"{laptop}/*.tfrecord", 70)
    project.change(image=replace(project.job.image, base="eu.gcr.io/me/with-data:1"))
    assert project.codes == [("warning", ON_LAPTOP)]
    project.write("Dockerfile", f"FROM python:3.12\nCOPY laptop {laptop}\n")
    assert project.codes == []


@pytest.mark.parametrize("word", ["os.environ.get('DATA')", "Path('/gcs').exists()"])
def test_data_that_may_differ_in_the_cloud_raise_warnings(project, laptop, word):
    project.ran_on(f"{laptop}/*.tfrecord", 1, text=READ + f"\n\nDATA = {word}\n")
    assert project.codes == [("warning", ON_LAPTOP), ("warning", "data-too-few")]


def test_data_outside_the_image(project):
    project.include("README.md")
    training, validation = project.problems
    assert training.code == validation.code == "data-not-in-image"
    assert "5 files in data that" in training.what
    assert "2 files in data that" in validation.what
    assert "image.include: [README.md, data]" in training.remedy
    assert project.facts.plan.examples == 1437
    project.write(".dockerignore", "data\n")
    assert all("!data at the end of .dockerignore" in each.remedy for each in project.problems)
    project.write("Dockerfile", "FROM python:3.12\nRUN make data\nCOPY . /app\n")
    assert project.problems == []


def test_only_the_files_in_the_image_count(project):
    project.include("data/train-00000-of-00005.tfrecord", "data/validation-00000-of-00002.tfrecord")
    facts, problems = project.check()
    assert (facts.files, facts.plan.examples, problems) == (1, 401, [])


def test_a_linked_folder_is_in_the_image_with_its_target(project):
    (project.folder / "linked").symlink_to("data")
    project.ran_on("linked/train-*.tfrecord", 400, 100, 500, 200, 237)
    project.include("linked", "data")
    assert project.check()[1] == []
    project.include("linked")
    assert project.codes == [("error", "data-not-in-image")]


def test_too_few_examples(project):
    project.use_cluster(4)
    project.ran({"kind": "arrays", "examples": 3}, {"kind": "arrays", "examples": 0})
    training, validation = project.problems
    assert training.code == validation.code == "data-too-few"
    assert "cluster.workers.count: 2" in training.remedy
    assert "validation data contain no record" in validation.what


@pytest.mark.parametrize("option", ["batch-size", "shards"])
def test_trials_that_differ_in_batch_or_shards_are_not_predicted(project, option):
    project.change(
        args=("--shards=7",),
        tuning=Tuning(
            "loss", "minimize", {option: RangeParameter(1, 9, is_integer=True)}, trials=2
        ),
    )
    assert project.check() == (None, [])


@pytest.mark.parametrize("words", [["--batch-size=many"], ["--shards=0"], ["--batch-size"]])
def test_invalid_options_are_left_to_the_check_of_options(project, words):
    project.change(args=tuple(words))
    assert project.check() == (None, [])


def test_clusters_that_the_trainer_does_not_train_on_are_left_to_other_checks(project):
    project.use_cluster(2, 8, "TPU_V3")
    assert project.check() == (None, [])
    project.use_cluster(2, 1)
    chief = project.job.cluster.chief
    unequal = replace(chief, machine=replace(chief.machine, accelerator_count=2))
    project.change(cluster=replace(project.job.cluster, chief=unequal))
    assert project.check() == (None, [])


def test_gpus_that_the_machine_does_not_take_are_not_compared_with_the_data(project):
    project.use_cluster(1, gpus=5, kind="n1-standard-8")
    facts, problems = project.check()
    assert (facts.plan.replicas, problems) == (5, [])
    project.use_cluster(5, gpus=1, kind="n1-standard-8")
    assert project.codes == [("error", "shards-not-divided")]


@pytest.mark.parametrize(
    ("tasks", "args", "remedy"),
    [
        (2, (), None),
        (7, (), "batch(56) or batch(63)"),
        (61, (), "write batch(61)"),
        (2, ("--global-batch-size=64",), "batch(64)"),
        (2, ("--batch-size=32",), "batch(64)"),
    ],
)
def test_the_batch_of_a_dataset_is_the_global_batch(project, tasks, args, remedy):
    project.ran({"kind": "dataset", "examples": 1437, "batch": 60})
    project.use_cluster(tasks)
    project.change(args=args)
    facts, problems = project.check()
    assert (facts.plan.global_batch, facts.plan.shards) == (60, None)
    assert [each.code for each in problems] == (["batch-clash"] if remedy else [])
    assert all(remedy in each.remedy and each.where == "trainer/data.py" for each in problems)
