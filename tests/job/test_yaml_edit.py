"""Values set in the text of a job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from distlaunch import scaffold
from distlaunch.errors import DistlaunchError
from distlaunch.job.yaml_document import Document
from distlaunch.job.yaml_edit import write_values


def set_values(file, text, values):
    file.write_bytes(text.encode())
    write_values(file, values)
    return file.read_bytes().decode()


IMAGE = ("image", "repository")


@pytest.mark.parametrize("starter", ["digits", "own-script"])
def test_a_new_project_keeps_its_comments(starter, tmp_path):
    text = scaffold.plan(tmp_path, starter).files[Path("distlaunch.yaml")].decode()
    values = {("project",): "p1", ("service_account",): "a@b.c", IMAGE: "h/p/r/n"}
    changed = set_values(tmp_path / "a", text, values)
    before, after = text.splitlines(), changed.splitlines()
    assert len(after) == len(before) + 1
    assert [line for line in before if line not in after] == [
        "project: my-project",
        next(line for line in before if "repository:" in line),
    ]
    assert set_values(tmp_path / "a", changed, values) == changed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# c\nname: x", "# c\nimage: {repository: v}\nname: x"),
        ("name: x\nimage:\n  base: b  # c\n", "name: x\nimage:\n  repository: v\n  base: b  # c\n"),
        ("image: {repository: 'old', base: b}  # c\n", "image: {repository: v, base: b}  # c\n"),
        ("image:\n  repository: >-\n    old\nname: x\n", None),
        ("image: {base: b}\n", "image: {repository: v, base: b}\n"),
        ("image: {}  # c\n", "image: {repository: v}  # c\n"),
        ("image:\nname: x\n", "image: {repository: v}\nname: x\n"),
        ("image:\n  repository:  # c\n", "image:\n  repository: v  # c\n"),
        ("image: &i\n  base: b\n", "image: &i\n  repository: v\n  base: b\n"),
        ("name: x\r\n", "image: {repository: v}\r\nname: x\r\n"),
        ('{"name": "x"}', '{image: {repository: v}, "name": "x"}'),
        ("a: &i {base: b}\nimage: *i\n", None),
    ],
)
def test_text_of_other_forms_is_not_broken(text, expected, tmp_path):
    if expected is None:
        with pytest.raises(DistlaunchError, match="set these keys by hand"):
            set_values(tmp_path / "a", text, {IMAGE: "v"})
        assert (tmp_path / "a").read_text() == text
        return
    assert set_values(tmp_path / "a", text, {IMAGE: "v"}) == expected
    assert Document(expected).data["image"]["repository"] == "v"


def test_the_mode_stays_and_no_symlink_is_followed(tmp_path):
    file, link = tmp_path / "a", tmp_path / "link"
    file.write_text("name: x\n")
    file.chmod(0o600)
    write_values(file, {IMAGE: "v"})
    assert file.stat().st_mode & 0o777 == 0o600
    link.symlink_to(file)
    with pytest.raises(DistlaunchError, match=r"cannot be written .*; set these keys by hand"):
        write_values(link, {IMAGE: "w"})
    assert link.is_symlink()
    file.chmod(0o400)
    with pytest.raises(DistlaunchError, match=r"cannot be written \(permission denied\)"):
        write_values(file, {IMAGE: "w"})
    assert "repository: v" in file.read_text()
