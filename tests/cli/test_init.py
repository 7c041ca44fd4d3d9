from __future__ import annotations

import os
import subprocess

import pytest

from distlaunch.image.context import read_context
from distlaunch.job.load import load_job
from distlaunch.render.templates import recipe
from distlaunch.resources import starters


def test_a_project_in_a_new_folder_and_what_comes_next(cli, tmp_path):
    done = cli("init", "digits")
    assert (done.returncode, done.stderr) == (0, "")
    first, *others = done.stdout.splitlines()
    count = sum(path.is_file() for path in (tmp_path / "digits").rglob("*"))
    assert first == f"created project digits in digits ({count} files)"
    assert others == ["next:", "  cd digits", "  distlaunch local"]


@pytest.mark.parametrize("name", ["it's here", "-x", "-"])
def test_the_next_command_works_for_any_folder(cli, tmp_path, name):
    shown = cli("init", "--", name).stdout.splitlines()
    subprocess.run(["sh", "-c", f"{shown[2]} && test -e trainer"], cwd=tmp_path, check=True)


def test_an_empty_name_is_refused(cli, tmp_path):
    done = cli("init", "")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "distlaunch: error: DIR is empty; leave it out for the current directory\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_broken_symlink(cli, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    done = cli("init", "loop")
    assert (done.returncode, done.stderr) == (
        1,
        "distlaunch: error: loop: is a broken symlink; expected a folder or a new name\n",
    )


def test_list(cli, tmp_path):
    done = cli("init", "--list")
    assert done.stdout == f"digits  {starters()['digits']}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_second_time_is_refused_and_forced(cli, tmp_path):
    cli("init")
    (tmp_path / "trainer" / "model.py").write_text("mine")
    refused = cli("init")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("distlaunch: error: .gitignore, README.md, data/")
    assert refused.stderr.endswith(
        "more would be overwritten; choose another folder, or add --force, which keeps each file "
        "that it changes as FILE.bak\n"
    )
    assert refused.stderr.count("\n") == 1
    assert (tmp_path / "trainer" / "model.py").read_text() == "mine"
    assert cli("init", "--force").returncode == 0
    assert (tmp_path / "trainer" / "model.py").read_text() != "mine"


def test_force_keeps_a_copy_of_each_file_that_it_changes(cli, tmp_path):
    folder = tmp_path / "digits"
    cli("init", "digits")
    before = {path for path in folder.rglob("*") if path.is_file()}
    (folder / "trainer/model.py").write_text("mine")
    (folder / "data/train-00000-of-00005.tfrecord").write_text("also mine")
    first = cli("init", "digits", "--force")
    data = "digits/data/train-00000-of-00005.tfrecord"
    assert sorted(first.stdout.splitlines()[:2]) == [
        f"kept {data} as {data}.bak",
        "kept digits/trainer/model.py as digits/trainer/model.py.bak",
    ]
    assert "kept" not in cli("init", "digits", "--force").stdout  # nothing differs
    (folder / "trainer/model.py").write_text("mine, too")
    second = cli("init", ".", "--force", cwd=folder)
    assert second.stdout.startswith("kept trainer/model.py as trainer/model.py.1.bak\ncreated ")
    copies = {path for path in folder.rglob("*") if path.is_file()} - before
    assert {str(path.relative_to(folder)): path.read_text() for path in copies} == {
        "data/train-00000-of-00005.tfrecord.bak": "also mine",
        "trainer/model.py.bak": "mine",
        "trainer/model.py.1.bak": "mine, too",
    }
    context = read_context(folder, recipe(load_job(folder).job, folder).ignore)
    assert not [file.path for file in context.files if file.path.endswith(".bak")]


def test_a_folder_that_cannot_be_written(cli):
    done = cli("init", "/proc/digits")
    assert done.returncode == 1
    assert done.stderr.startswith("distlaunch: error: /proc/digits/")
    assert done.stderr.endswith("; nothing was written\n")


def test_rights_are_those_of_any_new_file(cli, tmp_path):
    before = os.umask(0o027)
    try:
        cli("init")
    finally:
        os.umask(before)
    assert (tmp_path / "distlaunch.yaml").stat().st_mode & 0o777 == 0o640
