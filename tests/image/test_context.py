"""The files that go into an image: which ones, their digest, and refusals."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlaunch.errors import ContextError
from distlaunch.image.context import ContextFile, paths, read_context


@pytest.fixture
def folder(tmp_path):
    """A project with a package of two files and a requirements.txt."""
    project = tmp_path / "project"
    (project / "trainer").mkdir(parents=True)
    (project / "trainer/task.py").write_text("print()\n")
    (project / "trainer/model.py").write_text("model\n")
    (project / "requirements.txt").write_text("keras\n")
    return project


def digest(folder: Path) -> str:
    return read_context(folder, "").digest


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_files_are_sorted_with_mode_size_and_digest(folder):
    (folder / "trainer/task.py").chmod(0o700)
    (folder / "trainer/model.py").chmod(0o664)
    context = read_context(folder, "requirements.txt")
    assert context.files == (
        ContextFile("trainer/model.py", 0o644, 6, sha256(b"model\n")),
        ContextFile("trainer/task.py", 0o755, 8, sha256(b"print()\n")),
    )
    assert (context.folder, context.size) == (folder, 14)
    assert context.report() is None
    assert sorted(paths(folder, "requirements.txt")) == [file.path for file in context.files]
    for path, mode in (("trainer/model.py", 0o666), ("trainer/task.py", 0o777)):
        (folder / path).chmod(mode)  # what all may write stays so
        assert mode in {file.mode for file in read_context(folder, "").files}


def test_folders_are_included_as_docker_does(folder):
    """Also empty ones and those whose files are all ignored."""
    for name in ("checkpoints", "data", "ignored/inner", "listed/inner/empty", ".git"):
        (folder / name).mkdir(parents=True)
    (folder / "data/large").touch()
    (folder / "data").chmod(0o777)
    (folder / "trainer").chmod(0o2700)
    ignore = "data/*\nignored\nlisted\n!listed/inner\n**/.git\n"
    context = read_context(folder, ignore)
    assert {each.path: each.mode for each in context.folders} == {
        "checkpoints": 0o755,
        "data": 0o777,
        "trainer": 0o755,
        "listed/inner": 0o755,
        "listed/inner/empty": 0o755,
    }
    (folder / "listed/inner/empty").rmdir()
    assert read_context(folder, ignore).digest != context.digest


def test_times_folder_and_write_permission_do_not_change_the_digest(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert digest(tmp_path / "copy") == digest(folder)


contents = st.dictionaries(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join),
    st.tuples(st.binary(max_size=3), st.booleans()),
    max_size=4,
)


def write_files(folder: Path, files: dict[str, tuple[bytes, bool]]) -> bool:
    """Write files; return whether no file has the name of a folder."""
    try:
        for name, (content, is_executable) in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o755 if is_executable else 0o644)
    except OSError:
        return False
    return True


@settings(max_examples=60)
@given(contents, contents)
def test_digests_are_equal_exactly_for_equal_folders(one, other):
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, "one"), Path(name, "other")]
        for folder, files in zip(folders, (one, other), strict=True):
            folder.mkdir()
            if not write_files(folder, files):
                return
        digests = {digest(folder) for folder in folders}
    assert (len(digests) == 1) == (one == other)


def test_an_ignored_folder_is_not_entered(folder, monkeypatch):
    (folder / "models/deep").mkdir(parents=True)
    entered = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: entered.append(path) or scandir(path))
    read_context(folder, "*\n!trainer\n")
    assert entered == [folder, folder / "trainer"]


def test_symlinks_inside_the_folder_are_kept(folder):
    targets = {"nowhere": "./later", "package": "trainer", "trainer/link": "../requirements.txt"}
    for path, target in targets.items():
        (folder / path).symlink_to(target)
    assert [file for file in read_context(folder, "").files if file.target] == [
        ContextFile(path, 0o777, 0, sha256(target.encode()), target)
        for path, target in targets.items()
    ]


def test_all_refused_files_are_reported_at_once(folder, monkeypatch):
    monkeypatch.chdir(folder)
    os.mkfifo("trainer/pipe")
    os.mkfifo("trainer/a\nb")
    (folder / "trainer/data").symlink_to("../../data")
    (folder / "trainer/password").symlink_to("/etc/passwd")
    (folder / "trainer/round").symlink_to("round")
    (folder / "around").symlink_to("..")
    (folder / "trainer/far").symlink_to("../around/elsewhere")
    (folder / "trainer/.env").write_text("A=1")
    Path(os.fsdecode(b"trainer/\xff.py")).touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("trainer/socket")
        with pytest.raises(ContextError) as caught:
            read_context(folder, "around")
    exclude = "exclude it in .dockerignore"
    special = f"is a pipe, a socket or a device; {exclude}"
    outside = f"outside the folder; replace it by the file itself, or {exclude}"
    assert caught.value.lines == (
        "trainer/.env: contains variables, often with secrets; exclude it in .dockerignore, and "
        "give the job a service_account or read the value from Secret Manager; if it belongs in "
        "the image, add it to image.allow_secrets",
        f"'trainer/a\\nb': {special}",
        f"trainer/data: is a symlink to '../../data', {outside}",
        f"trainer/far: is a symlink to '../around/elsewhere', {outside}",
        f"trainer/password: is a symlink to '/etc/passwd', {outside}",
        f"trainer/pipe: {special}",
        f"trainer/socket: {special}",
        "trainer/\\udcff.py: its name is not UTF-8; rename it",
    )


def test_unreadable_files_and_folders_are_named(folder, monkeypatch):
    (folder / "closed").mkdir()

    def deny(original):
        def open_or_scan(path, *args, **kwargs):
            if str(path).endswith(("task.py", "closed")):
                raise PermissionError(13, "Permission denied")
            return original(path, *args, **kwargs)

        return open_or_scan

    monkeypatch.setattr(Path, "open", deny(Path.open))
    monkeypatch.setattr(os, "scandir", deny(os.scandir))
    with pytest.raises(ContextError) as caught:
        read_context(folder, "")
    reason = "cannot be read (permission denied); make it readable, or exclude it in .dockerignore"
    assert caught.value.lines == (f"closed: {reason}", f"trainer/task.py: {reason}")


def test_the_largest_files_of_a_large_context_are_reported(tmp_path):
    for number in range(8):
        with (tmp_path / f"data-{number}").open("wb") as file:
            file.truncate(number * 4_000_000)
    assert read_context(tmp_path, "").report().line == (
        "image context is 112.0 MB in 8 files; largest: data-7 (28.0 MB), data-6 (24.0 MB), "
        "data-5 (20.0 MB), data-4 (16.0 MB), data-3 (12.0 MB); exclude what the program does not "
        "need in .dockerignore"
    )
