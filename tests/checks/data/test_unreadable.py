"""Files that are there, and that the trainer or this machine cannot read."""

from __future__ import annotations

import os

import pytest

from distlaunch.checks import data, trainer
from distlaunch.checks.request_view import job_request
from distlaunch.job.machine_catalogue import bundled


def test_files_that_cannot_be_read_are_named_once(project):
    project.write("data/train-00005-of-00005.tfrecord", "no records at all, but text\n")
    project.write("data/train-00006-of-00005.tfrecord", "nor here")
    [problem] = project.problems
    assert problem.code == "data-unreadable"
    assert problem.severity == "error"
    assert problem.where == "data/train-00005-of-00005.tfrecord"
    assert "nor can 1 more file" in problem.what
    assert project.facts.examples is None


def test_a_file_that_is_cut_off_is_refused_as_the_trainer_refuses_it(project):
    for name in ("train-00000-of-00005", "validation-00001-of-00002"):
        path = project.folder / f"data/{name}.tfrecord"
        path.write_bytes(path.read_bytes()[:2000])
        [problem] = project.problems
        assert (problem.code, problem.severity) == ("data-unreadable", "error")
        assert problem.where == f"data/{name}.tfrecord"
        assert "should end at byte 2,034" in problem.what
        path.unlink()


@pytest.mark.parametrize("change", ["download('data')", "Dockerfile"])
def test_a_file_that_may_be_another_by_then_is_only_warned_of(project, change):
    project.write("data/train-00005-of-00005.tfrecord", "no records at all, but text\n")
    project.reads('"data/train-*.tfrecord"')
    if change == "Dockerfile":
        project.write("Dockerfile", "FROM python:3.12\nRUN make data\nCOPY . /app\n")
    else:
        source = project.folder / "trainer/data.py"
        source.write_text(f"{source.read_text()}\n\n{change}\n")
    [problem] = project.problems
    assert (problem.code, problem.severity) == ("data-unreadable", "warning")


def test_what_only_this_machine_cannot_read_is_warned_of(project):
    path = project.folder / "data/train-00000-of-00005.tfrecord"
    order = project.order
    files = [file.relative_to(project.folder).as_posix() for file in project.folder.rglob("*.*")]
    path.unlink()
    path.symlink_to("/proc/self/mem")  # a file that opens, and whose first page is nobody's
    _, [problem] = data.look(order, job_request(order), trainer.find(order), files, bundled())
    assert (problem.code, problem.severity) == ("data-unreadable", "warning")
    assert "cannot be read" in problem.what


def test_empty_files_among_others_are_warned_of(project):
    for number in (5, 6, 7):
        project.write(f"data/train-0000{number}-of-00005.tfrecord", b"")
    [problem] = project.problems
    assert (problem.code, problem.severity) == ("data-empty", "warning")
    assert problem.where == "data/train-00005-of-00005.tfrecord"
    assert problem.what == "the file is empty, and so are 2 more of the 8 files of the pattern"
    assert project.facts.examples == 1437


@pytest.mark.timeout(20)  # opening the pipe would block
def test_a_named_pipe_among_the_files_is_not_opened(project):
    order = project.order
    files = [file.relative_to(project.folder).as_posix() for file in project.folder.rglob("*.*")]
    os.mkfifo(project.folder / "data/train-00009-of-00005.tfrecord")
    files.append("data/train-00009-of-00005.tfrecord")
    facts, problems = data.look(order, job_request(order), trainer.find(order), files, bundled())
    assert facts is not None
    assert (facts.files, problems) == (5, [])


@pytest.mark.parametrize("before", ["", "download('data')\n"])
@pytest.mark.parametrize("url", ["s3://b/train-*", "http://host/train-*", "hdfs://host/d/train-*"])
def test_tensorflow_reads_of_no_other_cloud(project, url, before):
    project.reads(repr(url))
    source = project.folder / "trainer/data.py"
    source.write_text(f"{source.read_text()}\n{before}")
    [problem] = project.problems
    assert (problem.code, problem.severity) == ("data-unreadable", "error")
    assert problem.where == "trainer/data.py:7"
    assert "gs://my-bucket/digits/data/train-*" in problem.remedy
    assert ("gcloud storage cp" in problem.remedy) == url.startswith("s3")


def test_a_program_that_brings_other_clouds_is_trusted_to_read_of_them(project):
    project.reads("'s3://b/train-*'")
    project.write("trainer/more.py", "import tensorflow_io\n")
    assert project.problems == []


@pytest.mark.parametrize("place", ["gs://my-bucket/digits", "/gcs/my-bucket/digits"])
def test_a_bucket_that_stands_for_one_s_own_is_none(project, place):
    project.reads(repr(f"{place}/train-*.tfrecord"))
    [problem] = project.problems
    assert (problem.code, problem.severity) == ("placeholder-bucket", "error")
    assert problem.where == "trainer/data.py:7"
    project.endpoint = "http://127.0.0.1:8085"
    assert project.problems == []
