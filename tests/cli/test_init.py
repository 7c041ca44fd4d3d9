from __future__ import annotations

import os
import subprocess

import pytest

from distlaunch.image.context import read_context
from distlaunch.image.recipe import read_recipe
from distlaunch.job.load import load_job
from distlaunch.resources import starters


def test_a_project_in_a_new_folder_and_the_next_commands(run, tmp_path):
    before = os.umask(0o027)
    try:
        done = run("init", "digits")
    finally:
        os.umask(before)
    assert (done.code, done.err) == (0, "")
    first, *others = done.out.splitlines()
    files = [path for path in (tmp_path / "digits").rglob("*") if path.is_file()]
    assert first == f"created project digits in digits ({len(files)} files of the starter digits)"
    assert others == ["next:", "  cd digits", "  distlaunch local"]
    assert (tmp_path / "digits/distlaunch.yaml").stat().st_mode & 0o777 == 0o640


def test_the_name_of_a_starter_makes_that_starter(run, tmp_path):
    assert "files of the starter tabular)" in run("init", "tabular").out
    assert "penguin" in (tmp_path / "tabular/README.md").read_text()
    assert "of the starter text)" in run("init", "other", "--starter", "text").out
    assert "of the starter digits)" in run("init", "tabular-2").out
    assert "of the starter digits)" in run("init", "text", "--starter=digits").out
    again = run("init", "tabular")
    assert (again.code, "would be overwritten" in again.err) == (1, True)


@pytest.mark.parametrize("name", ["it's here", "-x", "-"])
def test_the_next_command_works_for_any_folder(run, tmp_path, name):
    shown = run("init", "--", name).out.splitlines()
    subprocess.run(["sh", "-c", f"{shown[2]} && test -e trainer"], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("folder", "code", "message"),
    [
        ("", 2, "DIR is empty; leave it out for the current directory"),
        ("loop", 1, "loop: is a broken symlink; expected a folder or a new name"),
    ],
)
def test_an_unusable_folder_is_refused(run, tmp_path, folder, code, message):
    (tmp_path / "loop").symlink_to("loop")
    assert run("init", folder) == (code, "", f"distlaunch: error: {message}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_list(run, tmp_path):
    lines = run("init", "--list").out.splitlines()
    assert [line.split()[0] for line in lines] == list(starters())
    descriptions = [facts["description"] for facts in starters().values()]
    assert len({lines[n].index(text) for n, text in enumerate(descriptions)}) == 1
    assert max(map(len, lines)) <= 100
    assert {"digits", "own-script"} <= starters().keys()
    assert list(tmp_path.iterdir()) == []


def test_a_script_that_is_there_takes_the_place_of_the_starter_s(run, tmp_path):
    (tmp_path / "train.py").write_text("print('mine')\n")
    done = run("init", ".", "--starter", "own-script")
    assert (done.code, "kept your train.py: its arguments are" in done.out) == (0, True)
    assert (tmp_path / "train.py").read_text() == "print('mine')\n"
    job_file = (tmp_path / "distlaunch.yaml").read_text()
    assert ("\nscript: train.py\n" in job_file, "\nargs: []\n" in job_file) == (True, True)
    assert not (tmp_path / "tests").exists()
    assert "train.py would be overwritten" in run("init", ".", "--starter", "own-script").err


def test_files_are_overwritten_with_force_only_and_changed_ones_kept(run, tmp_path):
    folder = tmp_path / "digits"
    run("init", "digits")
    before = {path for path in folder.rglob("*") if path.is_file()}
    data = "data/train-00000-of-00005.tfrecord"
    (folder / "trainer/model.py").write_text("mine")
    (folder / data).write_text("also mine")
    refused = run("init", "digits")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert refused.err.startswith("distlaunch: error: digits/.gitignore, digits/README.md")
    assert "choose another folder, or add --force, which keeps each file" in refused.err
    assert (folder / "trainer/model.py").read_text() == "mine"
    first = run("init", "digits", "--force")
    assert sorted(first.out.splitlines()[:2]) == [
        f"kept digits/{data} as digits/{data}.bak",
        "kept digits/trainer/model.py as digits/trainer/model.py.bak",
    ]
    assert "kept" not in run("init", "digits", "--force").out  # nothing differs
    (folder / "trainer/model.py").write_text("mine, too")
    second = run("init", ".", "--force", cwd=folder)
    assert second.out.startswith("kept trainer/model.py as trainer/model.py.1.bak\ncreated ")
    copies = {path for path in folder.rglob("*") if path.is_file()} - before
    assert {str(path.relative_to(folder)): path.read_text() for path in copies} == {
        f"{data}.bak": "also mine",
        "trainer/model.py.bak": "mine",
        "trainer/model.py.1.bak": "mine, too",
    }
    context = read_context(folder, read_recipe(load_job(folder).job, folder).ignore)
    assert not [file.path for file in context.files if file.path.endswith(".bak")]
