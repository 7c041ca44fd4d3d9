from __future__ import annotations

import gzip
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlaunch.job.model import Program, Span, Tuning

from .conftest import tfrecords


def test_what_init_makes_is_told_and_nothing_speaks_against_it(project):
    facts, problems = project.look()
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
    }


def test_another_program_s_data_are_not_looked_at(project):
    project.has(module="program.main")
    project.write("program/main.py", "")
    assert project.look() == (None, [])


def test_a_chief_with_an_image_of_its_own_has_another_program(project):
    chief = replace(project.job.cluster.chief, program=Program(image="gcr.io/x/y"))
    project.has(cluster=replace(project.job.cluster, chief=chief))
    assert project.look() == (None, [])


def test_data_py_that_is_no_python_is_not_looked_at(project):
    project.write("trainer/data.py", "def training(:\n")
    assert project.look() == (None, [])


@pytest.mark.parametrize(
    "place", ["gs://mine/digits", "/gcs/mine/digits", "gs://my-bucket-2", "ram://x", "/tmp/made"]
)
def test_data_elsewhere_are_not_read_and_the_cluster_is_told_all_the_same(project, place):
    project.reads(f'"{place}/train-*.tfrecord"')
    facts, problems = project.look()
    assert problems == []
    assert facts.examples is None
    assert facts.lines() == ("64 rows a step, 32 on each of 2 replicas",)


@pytest.mark.parametrize(
    "path",
    ["/home/me/digits/train-*", "/Users/me/train-*", "~/train-*", "C:\\data\\x", "D:/x", "/data/x"],
)
def test_a_path_of_this_machine(project, path):
    project.reads(repr(path))
    [problem] = project.problems
    assert problem.code == "data-on-this-machine"
    assert problem.where == "trainer/data.py:7"
    assert path in problem.what
    assert "gcloud storage cp" in problem.remedy
    assert "gs://my-bucket/digits/data/" in problem.remedy


def test_data_of_this_machine_are_counted(project, tmp_path):
    (tmp_path / "laptop").mkdir()
    (tmp_path / "laptop" / "a.tfrecord").write_bytes(tfrecords([b"x"] * 70))
    project.reads(repr(f"{tmp_path}/laptop/*.tfrecord"))
    facts, problems = project.look()
    assert facts.examples == 70
    assert [each.code for each in problems] == ["data-on-this-machine"]


def test_the_project_s_own_path_on_this_machine_is_none_of_the_container(project):
    project.reads(repr(f"/home{project.folder}/data/train-*.tfrecord"))
    assert project.codes == ["data-on-this-machine"]


def test_a_folder_above_the_project_is_not_in_the_container(project):
    project.reads('"../data/train-*.tfrecord"')
    [problem] = project.problems
    assert problem.code == "data-on-this-machine"
    assert "/data/train-*.tfrecord" in problem.what


def test_a_base_of_the_user_s_own_may_bring_the_data(project):
    project.reads('"/data/train-*.tfrecord"')
    project.has(image=replace(project.job.image, base="eu.gcr.io/me/with-data:1"))
    assert project.problems == []
    project.reads('"/home/me/train-*.tfrecord"')
    assert project.codes == ["data-on-this-machine"]


def test_a_pattern_that_fits_nothing_and_what_is_there(project):
    project.reads('"data/training-*.tfrecord"')
    [problem] = project.problems
    assert problem.code == "data-missing"
    assert problem.what == "no file matches data/training-*.tfrecord"
    assert "in data there is ATTRIBUTION.md and 7 more" in problem.remedy


def test_a_folder_is_no_pattern(project):
    project.reads('"data"')
    [problem] = project.problems
    assert problem.code == "data-missing"
    assert "data/*.tfrecord" in problem.remedy


def test_a_url_that_pathlib_has_mangled(project):
    project.reads('str(Path("gs://my-bucket/digits") / "train-*")')
    [problem] = project.problems
    assert problem.code == "data-missing"
    assert "gs://my-bucket/digits/train-*" in problem.remedy


def test_data_that_stay_here(project):
    project.includes("README.md")
    training, validation = project.problems
    assert training.code == validation.code == "data-not-in-image"
    assert "5 files match data/train-*.tfrecord" in training.what
    assert "2 files match" in validation.what
    assert "image.include: [README.md, data]" in training.remedy
    assert project.facts.examples == 1437


def test_data_that_an_ignore_file_of_one_s_own_leaves_out(project):
    project.write(".dockerignore", "data\n")
    assert set(project.codes) == {"data-not-in-image"}
    assert all("!data at the end of .dockerignore" in each.remedy for each in project.problems)


def test_of_several_files_those_in_the_image_are_counted(project):
    project.includes(
        "data/train-00000-of-00005.tfrecord", "data/validation-00000-of-00002.tfrecord"
    )
    facts, problems = project.look()
    assert problems == []
    assert facts.files == 1
    assert facts.examples < 1437


def test_a_folder_that_is_a_link_is_followed_as_far_as_it_is_let_in(project):
    (project.folder / "linked").symlink_to("data")
    project.reads('"linked/train-*.tfrecord"')
    project.includes("linked", "data")
    assert project.look()[1] == []
    assert project.facts.examples == 1437
    project.includes("linked")
    assert project.codes == ["data-not-in-image"]


def test_a_dockerfile_of_one_s_own_may_bring_the_data(project):
    project.write("Dockerfile", "FROM python:3.12\nCOPY . /srv\n")
    project.reads('"/srv/data/train-*.tfrecord"')
    assert project.problems == []
    project.reads('"data/nothing-*.tfrecord"')
    assert project.problems == []
    project.reads('os.environ.get("DATA", "/home/me/data")')
    assert project.problems == []


def test_packed_files_are_not_counted(project):
    project.write("data/packed.tfrecord", gzip.compress(tfrecords([b"x"])))
    project.reads('"data/packed.tfrecord"')
    facts, problems = project.look()
    assert problems == []
    assert facts.lines()[0] == "examples in 1 file that are not counted from here"


def test_too_few_examples_to_train_on(project):
    project.runs_on(4)
    project.records("data/few.tfrecord", 3)
    project.reads('"data/few.tfrecord"')
    [problem] = project.problems
    assert problem.code == "data-too-few"
    assert "cluster.workers.count: 2" in problem.remedy


def test_too_few_examples_to_validate_on(project):
    for file in project.folder.glob("data/validation-*"):
        file.unlink()
    project.records("data/validation-1.tfrecord", 1)
    [problem] = project.problems
    assert problem.code == "data-too-few"
    assert "validation" in problem.what


def test_no_records_at_all(project):
    project.write("data/none.tfrecord", b"")
    project.reads('"data/none.tfrecord"')
    [problem] = project.problems
    assert problem.code == "data-too-few"
    assert "no record" in problem.what


def test_very_many_records_are_not_all_counted(project):
    project.write("data/many.tfrecord", tfrecords([b""]) * 1_000_001)
    project.reads('"data/many.tfrecord"')
    facts = project.facts
    assert facts.steps_per_epoch is None
    assert facts.lines() == (
        "more than 1,000,000 examples in 1 file",
        "64 rows a step, 32 on each of 2 replicas",
    )
    project.has(args=("--steps-per-epoch=10",))
    [problem] = project.problems
    assert problem.code == "steps-partial"
    assert "covers 640 of more than 1,000,000 examples" in problem.what
    project.has(args=("--steps-per-epoch=100000",))
    assert project.problems == []


@pytest.mark.parametrize("option", ["batch-size", "shards"])
def test_what_trials_differ_in_is_not_foretold(project, option):
    project.has(
        args=("--shards=7",),
        tuning=Tuning("loss", "minimize", {option: Span(1, 9, whole=True)}, trials=2),
    )
    facts, problems = project.look()
    assert facts is None
    assert problems == []


@pytest.mark.parametrize("words", [["--batch-size=many"], ["--shards=0"], ["--batch-size"]])
def test_options_that_the_trainer_does_not_take_are_left_to_others(project, words):
    project.has(args=tuple(words))
    assert project.look() == (None, [])


def test_tpus_are_left_to_others(project):
    project.runs_on(2, 8, "TPU_V3")
    assert project.look() == (None, [])


def test_machines_with_other_numbers_of_gpus_are_left_to_others(project):
    project.runs_on(2, 1)
    chief = replace(
        project.job.cluster.chief,
        machine=replace(project.job.cluster.chief.machine, accelerator_count=2),
    )
    project.has(cluster=replace(project.job.cluster, chief=chief))
    assert project.look() == (None, [])


OWN = """
import numpy as np
import tensorflow as tf

{before}
def training():
    {read}
    return tf.data.Dataset.from_tensor_slices(x).batch({batch})
"""


def own(batch="60", read="pass", before=""):
    return OWN.format(batch=batch, read=read, before=before)


def test_a_data_set_of_the_user_s_own_says_its_batch(project):
    project.write("trainer/data.py", own())
    facts, problems = project.look()
    assert problems == []
    assert facts.lines() == ("60 rows a step, 30 on each of 2 replicas",)
    assert facts.shards is None
    project.write("trainer/data.py", own("rows()"))
    assert project.facts.lines() == ()


def test_shards_are_no_matter_to_a_data_set_of_the_user_s_own(project):
    project.write("trainer/data.py", own())
    project.runs_on(5)
    assert project.look()[1] == []
    project.write("trainer/data.py", "def training():\n    return load()\n")
    assert project.look()[1] == []


@pytest.mark.parametrize(
    ("tasks", "args", "words"),
    [
        (7, (), "batch(56) or batch(63)"),
        (61, (), "write batch(61)"),
        (2, ("--global-batch-size=64",), "batch(64)"),
        (2, ("--batch-size=32",), "batch(64)"),
    ],
)
def test_a_batch_of_the_user_s_own_that_does_not_fit(project, tasks, args, words):
    project.write("trainer/data.py", own())
    project.runs_on(tasks)
    project.has(args=args)
    [problem] = project.problems
    assert problem.code == "batch-clash"
    assert problem.where == "trainer/data.py:8"
    assert words in problem.remedy


def test_gpus_that_the_machine_does_not_take_are_not_held_against_the_data(project):
    project.runs_on(1, gpus=5)
    facts, problems = project.look()
    assert problems == []
    assert facts.replicas == 5
    project.runs_on(5, gpus=1)
    assert project.codes == ["shards-not-divided"]


def test_two_batches_are_one_too_many(project):
    project.has(args=("--batch-size=16", "--global-batch-size=64"))
    [problem] = project.problems
    assert problem.code == "batch-clash"
    assert "--global-batch-size=32" in problem.remedy


def test_a_home_folder_is_seen_wherever_it_is_read(project):
    project.write("trainer/data.py", own(read="x = np.load('/home/me/x.npz')"))
    [problem] = project.problems
    assert problem.code == "data-on-this-machine"
    assert problem.where == "trainer/data.py:7"
    project.write("trainer/data.py", own(before="x = np.load('/Users/me/x.npz')"))
    assert project.codes == ["data-on-this-machine"]
    with_block = "with np.load('/Users/me/x.npz') as x:\n        pass"
    project.write("trainer/data.py", own(read=with_block))
    assert project.codes == ["data-on-this-machine"]


@pytest.mark.parametrize(
    "read",
    [
        "x = np.load('/home/me/x.npz') if here() else 3",
        "if here():\n        x = np.load('/home/me/x.npz')",
        "print('/home/me')",
        "import os; there = os.path.exists('/home/me')",
    ],
)
def test_a_home_folder_that_is_not_sure_to_be_read(project, read):
    project.write("trainer/data.py", own(read=read))
    assert project.problems == []


def test_data_that_the_program_may_fetch_are_not_missed(project):
    project.write(
        "trainer/data.py",
        "from trainer.distributed.input import Records\n\n\ndef training():\n"
        "    download('data/new')\n    return Records('data/new/*', parse=parse)\n",
    )
    assert project.look()[1] == []


ODD = ["", ".", "..", "/", "**", "a**b", "data/**/x", "[", "data/[", "\0", "x" * 300, "/app", "//x"]


@pytest.mark.parametrize(
    "pattern", [*ODD, "data/", "/app/data/train-*", "file:///app/data/train-*"]
)
def test_odd_patterns(project, pattern):
    project.reads(repr(pattern))
    _, problems = project.look()
    is_there = pattern.endswith("data/train-*")
    assert bool(problems) == (not is_there)
    assert all("\n" not in each.line for each in problems)


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pattern=st.text(alphabet="adt/.*?[]-:~\\ \n\0é", max_size=12))
def test_any_text_may_be_a_pattern(project, pattern):
    project.reads(ascii(pattern))
    _, problems = project.look()
    assert all(each.line.isprintable() for each in problems)
