"""What `init` writes, and what it refuses."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distlaunch import resources
from distlaunch.errors import DistlaunchError, UsageError
from distlaunch.job.json_schema import schema_text
from distlaunch.job.load import load_job_file
from distlaunch.job.names import LONGEST_NAME, project_name
from distlaunch.scaffold import Scaffold, plan

SMALL = Scaffold("x", {Path("a"): b"new a", Path("folder/b"): b"new b"})


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@given(st.text())
@example("")
@example("class")
@example("None")
@example("2024 Model")
@example("__init__")
@example("日本語")
@example("Ünïcödé-Straße ½")
@example("x" * 62 + "-" + "y" * 9)
def test_any_text_gives_a_project_name(text):
    name = project_name(text)
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)
    assert len(name) <= LONGEST_NAME
    assert name.isidentifier()
    assert not keyword.iskeyword(name)
    assert project_name(name) == name


@pytest.mark.parametrize("folder", ["digits", "null", "Yes", "1e3", "日本"])
def test_job_file_of_any_folder(tmp_path, folder):
    project = plan(tmp_path / folder, "digits")
    project.write(tmp_path / folder)
    job = load_job_file(tmp_path / folder / "distlaunch.yaml")
    assert job.name == project.name == project_name(folder)
    assert job.image.repository == f"us-central1-docker.pkg.dev/my-project/training/{job.name}"
    assert job.cluster.describe() == "2 tasks: chief + 1 worker"
    assert job.module == "trainer.task"


def test_starter_overlays_the_base_and_what_it_extends(tmp_path, monkeypatch):
    skeleton = tmp_path / "skeleton"
    for path, text in {
        "base/both.txt": "base",
        "base/name.txt.j2": "{{ name }} {{ 'null' | yaml }} {{ name | yaml }}\n",
        "base/.gitignore": "kept",
        "base/data/.records-index.json": "no",
        "base/package/__pycache__/x.pyc": "no",
        "base/.pytest_cache/README.md": "no",
        "base/stray.pyc": "no",
        "base/ABOUT.md": "Nothing.",
        "base/README.md.j2": "# {{ name }}\n\n{{ about }}\n",
        "base/facts.txt.j2": "{{ args | yaml }} {{ env | yaml }} {{ script }}",
        "base/trainer/task.py": "base",
        "starters/one/starter.yaml": "description: The one.\nargs: [--a=1]\nenv: {B: '2', A: x}\n",
        "starters/one/both.txt": "starter",
        "starters/one/data/x": "one",
        "starters/one/ABOUT.md": "One.\n",
        "starters/two/starter.yaml": "description: Two.\nextends: one\nargs: [--b]\n",
        "starters/two/data/x": "two",
        "starters/three/starter.yaml": "extends: two\nscript: true\n",
        "starters/three/ABOUT.md": "Three {{ name }}.",
        "starters/three/tests/test_train.py": "three",
    }.items():
        (skeleton / path).parent.mkdir(parents=True, exist_ok=True)
        (skeleton / path).write_text(text)
    monkeypatch.setattr(resources, "skeleton", lambda: skeleton)
    one = {
        "both.txt": "starter",
        "name.txt": "some_name 'null' some_name\n",
        ".gitignore": "kept",
        "README.md": "# some_name\n\nOne.\n",
        "facts.txt": "[--a=1] {B: '2', A: x} False",
        "data/x": "one",
        "trainer/task.py": "base",
        "distlaunch.schema.json": schema_text(),
    }
    two = one | {"data/x": "two", "facts.txt": "[--b] {B: '2', A: x} False"}
    three = two | {
        "README.md": "# some_name\n\nThree {{ name }}.\n",
        "facts.txt": "[--b] {B: '2', A: x} True",
        "tests/test_train.py": "three",
    }
    del three["trainer/task.py"]
    for starter, expected in (("one", one), ("two", two), ("three", three)):
        files = plan(tmp_path / "Some Name", starter).files
        assert {str(path): data.decode() for path, data in files.items()} == expected


def test_existing_files_are_only_overwritten_with_force_and_kept(tmp_path):
    (tmp_path / "a").write_text("old a")
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(DistlaunchError, match=rf"^{tmp_path}/a would be overwritten; .*--force, "):
        SMALL.write(tmp_path)
    before = {"mine": b"mine", "a": b"old a"}
    assert tree(tmp_path) == before
    SMALL.write(tmp_path, overwrite=True)
    after = {"a": b"new a", "a.bak": b"old a", "folder/b": b"new b"}
    assert tree(tmp_path) == before | after


def test_file_in_place_of_a_folder_is_refused_with_force_too(tmp_path):
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(DistlaunchError, match="/folder/b would be overwritten"):
        SMALL.write(tmp_path)
    with pytest.raises(
        DistlaunchError, match=r"folder/b: .*; 1 of 2 files were written; .*--force"
    ):
        SMALL.write(tmp_path, overwrite=True)
    for overwrite in (False, True):
        with pytest.raises(DistlaunchError, match="folder: is a file; expected a folder"):
            SMALL.write(tmp_path / "folder", overwrite=overwrite)


@pytest.mark.parametrize("target", ["mine", "nowhere"])
def test_symlink_is_replaced_and_its_target_kept(tmp_path, target):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "a").symlink_to(target)
    SMALL.write(tmp_path, overwrite=True)
    assert (tmp_path / "a.bak").readlink() == Path(target)
    (tmp_path / "a.bak").unlink()
    assert tree(tmp_path) == {"a": b"new a", "folder/b": b"new b", "mine": b"mine"}


def test_folder_in_place_of_a_file_is_kept(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine").write_text("mine")
    with pytest.raises(DistlaunchError, match=r"a: is a directory; nothing was written$"):
        SMALL.write(tmp_path, overwrite=True)
    assert tree(tmp_path) == {"a/mine": b"mine"}


def test_message_names_ten_files(tmp_path):
    many = Scaffold("x", {Path(f"{number:02}"): b"" for number in range(13)})
    many.write(tmp_path)
    with pytest.raises(DistlaunchError) as refusal:
        many.write(tmp_path)
    assert str(refusal.value).count(str(tmp_path)) == 10
    assert " and 3 more would be overwritten" in str(refusal.value)


def test_failed_write_reports_its_progress(tmp_path, monkeypatch):
    def full(path: Path, content: bytes) -> None:
        if path.parent.name == "folder":
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr("distlaunch.scaffold.atomic_write", full)
    line = (
        "folder/b: no space left on device; 1 of 2 files were written; once that is fixed, run "
        "again with --force, which keeps each file that it changes as FILE.bak"
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/b").write_text("old b")
    with pytest.raises(DistlaunchError, match=f"{line}$"):
        SMALL.write(tmp_path, overwrite=True)
    assert tree(tmp_path) == {"a": b"new a", "folder/b": b"old b"}


def test_unknown_starter():
    with pytest.raises(UsageError, match=r"^no starter 'digit'; did you mean 'digits'\?$"):
        plan(Path("x"), "digit")
    with pytest.raises(UsageError, match=r"^no starter 'zzz'; there are: .*digits, .*own-script"):
        plan(Path("x"), "zzz")
