from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.local import run_folder
from distlaunch.local.run_folder import choose, new, resumed
from distlaunch.paths import LOCAL_JOBS


def make_job(project: Path, name: str, *, checkpoints: bool = True) -> Path:
    folder = project / LOCAL_JOBS / name
    (folder / "checkpoints").mkdir(parents=True)
    if checkpoints:
        (folder / "checkpoints" / "1").touch()
    return folder


def test_new_jobs_get_folders_named_after_the_moment(tmp_path, monkeypatch):
    folder = new(tmp_path, None)
    assert re.fullmatch(r"\d{8}-\d{6}", folder.id)
    assert folder.job_dir == str(tmp_path / ".distlaunch/local" / folder.id)
    assert Path(folder.job_dir, "task-logs").is_dir()
    monkeypatch.setattr(run_folder.time, "strftime", lambda _: "20261121-101112")
    ids = [new(tmp_path, None).id for _ in range(3)]
    assert ids == ["20261121-101112", "20261121-101112-2", "20261121-101112-3"]


def test_a_requested_folder_is_created_in_the_project(tmp_path):
    for job_dir in ("out/x", "./out/y/../x", "out/x/", "out/x"):
        folder = new(tmp_path, job_dir)
        assert (folder.job_dir, folder.id) == (str(tmp_path / "out" / "x"), "x")


def test_a_job_in_the_cloud_has_its_output_here_by_which_it_is_resumed(tmp_path):
    make_job(tmp_path, "20200101-000000")
    folder = new(tmp_path, "gs://bucket/job/")
    assert folder.job_dir == "gs://bucket/job"
    assert folder.task_logs == tmp_path / LOCAL_JOBS / folder.id / "task-logs"
    assert folder.task_logs.is_dir()
    assert folder.summary_version() is None
    for which in ("", folder.id, str(LOCAL_JOBS / folder.id)):
        assert resumed(tmp_path, which) == folder


@pytest.mark.parametrize(
    ("link", "job_dir", "message"),
    [
        ("", "file", "file: the job folder cannot be written (not a directory)"),
        ("", "file/x", "file/x: the job folder cannot be written (not a directory)"),
        ("", "/proc/x", "/proc/x: the job folder cannot be written (no such file or directory)"),
        (".distlaunch", None, ".distlaunch/local: the job folder cannot be written (/"),
        (".distlaunch/local", None, ".distlaunch/local: the job folder cannot be written (/"),
    ],
)
def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, link, job_dir, message):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    if link:
        Path(link).parent.mkdir(exist_ok=True)
        Path(link).symlink_to("nowhere")
    with pytest.raises(DistlaunchError, match=r"; choose another --job-dir$") as refusal:
        new(tmp_path, job_dir)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("name", ["model", "task-logs", "."])
def test_a_run_of_a_clone_is_not_resumed_through_a_symlink(tmp_path, name):
    folder = new(tmp_path, None).path
    (folder / "checkpoints/other").mkdir(parents=True)
    outside = tmp_path / "outside"
    path = folder / name
    if path.exists():
        path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(DistlaunchError, match=r"is a symlink\); choose another --job-dir$"):
        resumed(tmp_path, folder.name)
    with pytest.raises(DistlaunchError, match="is a symlink"):
        resumed(tmp_path, "")


def test_resume_takes_the_newest_that_has_a_finished_checkpoint(tmp_path):
    for name in ("20261121-101112", "20261121-101112-10", "20261121-101112-9", "20261120-235959"):
        make_job(tmp_path, name)
    unfinished = make_job(tmp_path, "20261122-101112", checkpoints=False)
    (tmp_path / LOCAL_JOBS / "29990101-000000").touch()
    assert resumed(tmp_path, "").id == "20261121-101112-10"
    (unfinished / "checkpoints/step-00000010").mkdir()
    assert resumed(tmp_path, "").id == "20261121-101112-10"
    (unfinished / "checkpoints/step-00000010/checkpoint.json").touch()
    assert resumed(tmp_path, "").id == "20261122-101112"


@pytest.mark.parametrize("which", ["..", ".", "./20261121-101112"])
def test_only_a_bare_name_is_an_id(tmp_path, which):
    make_job(tmp_path, "20261121-101112")
    for folder in (LOCAL_JOBS.parent, LOCAL_JOBS):  # where '..' and '.' would lead
        (tmp_path / folder / "checkpoints" / "1").mkdir(parents=True)
    with pytest.raises(DistlaunchError, match=r"has no checkpoints|neither a job"):
        resumed(tmp_path, which)


def test_a_bucket_has_a_name_and_other_schemes_are_refused(tmp_path):
    for path in ("gs://", "gs:///x"):
        for choice in [(None, path, None), (None, None, path), (path, None, None)]:
            with pytest.raises(UsageError, match=rf"^{path}: no bucket is named; expected gs://"):
                choose(tmp_path, *choice)
    with pytest.raises(UsageError, match=r"--job-dir s3://bucket/job: unsupported URI scheme"):
        choose(tmp_path, None, "s3://bucket/job", None)
    assert list(tmp_path.iterdir()) == []


def test_choice_between_command_line_and_job_file(tmp_path):
    for name in ("file", "line"):
        (tmp_path / name / "checkpoints" / "1").mkdir(parents=True)
    make_job(tmp_path, "one")
    chosen = {
        (None, "line", "file"): "line",
        (None, None, "file"): "file",
        ("", "line", "file"): "line",
        ("", None, "file"): "file",
        ("", None, None): "one",
        ("one", None, "file"): "one",
    }
    for (resume, requested, by_file), expected in chosen.items():
        assert choose(tmp_path, resume, requested, by_file).id == expected
    with pytest.raises(UsageError, match=r"^--resume one and --job-dir line are two folders"):
        choose(tmp_path, "one", "line", None)


def test_summary_and_its_version(tmp_path):
    folder = new(tmp_path, "job")
    path = Path(folder.job_dir, "summary.json")
    assert (folder.summary(), folder.summary_version()) == (None, None)
    for garbage in (b"", b"{", b"[1]", b"\xff"):
        path.write_bytes(garbage)
        assert folder.summary() is None
    path.write_text(json.dumps({"steps": 3}))
    before = folder.summary_version()
    assert folder.summary() == {"steps": 3}
    os.utime(path, ns=(1, 1))
    assert folder.summary_version() not in (None, before)
