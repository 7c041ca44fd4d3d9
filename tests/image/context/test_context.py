"""The files that go into an image: which, what of them counts, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlaunch.errors import ContextError, DistlaunchError
from distlaunch.image.context import ContextFile, read_context

ALL = ""


@pytest.fixture
def folder(tmp_path):
    """A project with two files in a package and one beside it."""
    made = tmp_path / "project"
    (made / "trainer").mkdir(parents=True)
    (made / "trainer/task.py").write_text("print()\n")
    (made / "trainer/model.py").write_text("model\n")
    (made / "requirements.txt").write_text("keras\n")
    return made


def digest(folder: Path, ignore: str = ALL, cache: Path | None = None) -> str:
    return read_context(folder, ignore, cache=cache).digest


def problems(folder: Path, ignore: str = ALL) -> tuple[str, ...]:
    with pytest.raises(ContextError) as refusal:
        read_context(folder, ignore)
    return refusal.value.lines


def settle() -> None:
    """Wait until the file system's clock has moved on."""
    time.sleep(0.05)


def test_the_files_in_order_with_mode_size_and_digest(folder):
    (folder / "trainer/task.py").chmod(0o700)
    (folder / "trainer/model.py").chmod(0o666)
    context = read_context(folder, "requirements.txt")
    assert context.files == (
        ContextFile("trainer/model.py", 0o644, 6, hashlib.sha256(b"model\n").hexdigest()),
        ContextFile("trainer/task.py", 0o755, 8, hashlib.sha256(b"print()\n").hexdigest()),
    )
    assert (context.folder, context.size) == (folder, 14)
    assert context.report() is None


def test_neither_time_nor_place_nor_owners_writing_counts(folder, tmp_path):
    before = digest(folder)
    shutil.copytree(folder, tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert digest(tmp_path / "copy") == before


CHANGES = {
    "content": lambda folder: (folder / "trainer/task.py").write_text("print(1)"),
    "an executable": lambda folder: (folder / "trainer/task.py").chmod(0o755),
    "a name": lambda folder: (folder / "trainer/task.py").rename(folder / "trainer/run.py"),
    "a file more": lambda folder: (folder / "trainer/more.py").touch(),
    "a file less": lambda folder: (folder / "trainer/task.py").unlink(),
    "a link": lambda folder: (folder / "trainer/link").symlink_to("task.py"),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("cached", [False, True])
def test_what_counts(folder, tmp_path, what, cached):
    cache = tmp_path / "cache" if cached else None
    settle()
    before = digest(folder, cache=cache)
    CHANGES[what](folder)
    assert digest(folder, cache=cache) == digest(folder) != before


contents = st.dictionaries(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join),
    st.tuples(st.binary(max_size=3), st.booleans()),
    max_size=4,
)


def made_of(folder: Path, files: dict[str, tuple[bytes, bool]]) -> bool:
    """Write files; say whether no file's name is also a folder's."""
    try:
        for name, (content, may_run) in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o755 if may_run else 0o644)
    except OSError:
        return False
    return True


@settings(max_examples=60)
@given(contents, contents)
def test_two_folders_have_one_digest_if_and_only_if_they_are_alike(one, other):
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, "one"), Path(name, "other")]
        for folder, files in zip(folders, (one, other), strict=True):
            folder.mkdir()
            if not made_of(folder, files):
                return
        digests = {digest(folder) for folder in folders}
    assert (len(digests) == 1) == (one == other)


COUNT_READS = """\
import sys
from pathlib import Path
from distlaunch.image.context import read_context
folder, cache = map(Path, sys.argv[1:])
opened = []
def see(event, arguments):
    if event == "open" and str(arguments[0]).startswith(f"{folder}/"):
        opened.append(arguments[0])
sys.addaudithook(see)
print(read_context(folder, "", cache=cache).digest, len(opened))
"""


def read_by_another(folder: Path, cache: Path) -> tuple[str, int]:
    """Return the digest, and how many files another process opened for it."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT_READS, folder, cache],
        capture_output=True,
        text=True,
        check=True,
    )
    found, count = done.stdout.split()
    return found, int(count)


def test_only_what_changed_is_read_again(folder, tmp_path):
    settle()
    cache = tmp_path / "cache"
    first, opened = read_by_another(folder, cache)
    assert opened == 3
    assert read_by_another(folder, cache) == (first, 0)
    (folder / "trainer/model.py").write_text("other\n")  # of the same length
    settle()
    second, opened = read_by_another(folder, cache)
    assert opened == 1
    assert read_by_another(folder, cache) == (second, 0)
    (folder / "trainer/model.py").unlink()
    third, opened = read_by_another(folder, cache)
    assert opened == 0
    assert len({first, second, third}) == 3


def test_a_file_put_back_to_its_old_time_is_still_seen_to_have_changed(folder, tmp_path):
    settle()
    cache, file = tmp_path / "cache", folder / "trainer/model.py"
    before, times = digest(folder, cache=cache), file.stat()
    file.write_text("other\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert digest(folder, cache=cache) == digest(folder) != before


def test_a_file_that_changes_within_one_tick_is_seen_to_have_changed(tmp_path):
    cache, file = tmp_path / "cache", tmp_path / "project/file"
    file.parent.mkdir()
    for number in range(300):
        file.write_text(f"{number:05}\n")
        (read,) = read_context(file.parent, ALL, cache=cache).files
        assert read.digest == hashlib.sha256(f"{number:05}\n".encode()).hexdigest()


def test_a_file_that_may_still_change_within_the_tick_is_read_again(folder, tmp_path):
    settle()
    later = time.time() + 1000  # as of all that is written now until the clock says so
    os.utime(folder / "trainer/model.py", (later, later))
    cache = tmp_path / "cache"
    assert [read_by_another(folder, cache)[1] for _ in range(3)] == [3, 1, 1]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff{",
        b"[]",
        b"[" * 100_000,
        b'{"version": 2}',
        b'{"version": 2, "files": {"requirements.txt": 5, "trainer/task.py": "x"}}',
        b'{"version": 0, "files": {}}',
    ],
)
def test_a_cache_that_holds_something_else_changes_nothing(folder, tmp_path, content):
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "context.json").write_bytes(content)
    assert digest(folder, cache=cache) == digest(folder)


def test_what_is_known_from_an_older_distlaunch_is_not_relied_on(folder, tmp_path):
    settle()
    cache = tmp_path / "cache"
    digest(folder, cache=cache)
    known = json.loads((cache / "context.json").read_bytes())
    known["version"] += 1
    known["files"] = {path: entry[:-1] + "x" for path, entry in known["files"].items()}
    (cache / "context.json").write_text(json.dumps(known))
    assert digest(folder, cache=cache) == digest(folder)


def test_without_a_place_for_a_cache_there_is_none(folder, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert digest(folder, cache=tmp_path / "cache") == digest(folder)


def test_the_cache_is_a_file_and_no_more(folder, tmp_path):
    settle()
    for _ in range(2):
        digest(folder, cache=tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["context.json"]


def test_an_ignored_folder_is_not_entered(folder, tmp_path):
    (folder / "models/deep").mkdir(parents=True)
    (folder / "models/deep/x").touch()
    script = COUNT_READS.replace('"open"', '"os.scandir"').replace('""', '"*\\n!trainer\\n"')
    done = subprocess.run(
        [sys.executable, "-c", script, folder, tmp_path / "cache"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[1] == "1"  # trainer, besides the project itself


@pytest.mark.parametrize("size", [0, 1, (1 << 18) - 1, 1 << 18, (1 << 20) - 1, 1 << 20, 3_000_001])
def test_files_of_any_size(tmp_path, size):
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "data").write_bytes(content[:size])
    (file,) = read_context(tmp_path, ALL).files
    assert (file.size, file.digest) == (size, hashlib.sha256(content[:size]).hexdigest())


def test_links_are_kept_where_they_stay(folder):
    (folder / "trainer/link").symlink_to("../requirements.txt")
    (folder / "package").symlink_to("trainer")
    (folder / "nowhere").symlink_to("./later")
    links = [file for file in read_context(folder, ALL).files if file.target]
    assert links == [
        ContextFile("nowhere", 0o777, 0, hashlib.sha256(b"./later").hexdigest(), "./later"),
        ContextFile("package", 0o777, 0, hashlib.sha256(b"trainer").hexdigest(), "trainer"),
        ContextFile(
            "trainer/link",
            0o777,
            0,
            hashlib.sha256(b"../requirements.txt").hexdigest(),
            "../requirements.txt",
        ),
    ]


def test_what_can_not_go_in_is_told_all_at_once(folder, monkeypatch):
    monkeypatch.chdir(folder)
    os.mkfifo("trainer/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("trainer/socket")
        (folder / "trainer/data").symlink_to("../../data")
        (folder / "trainer/password").symlink_to("/etc/passwd")
        (folder / "trainer/round").symlink_to("round")
        (folder / "around").symlink_to("..")
        (folder / "trainer/far").symlink_to("../around/elsewhere")
        (folder / "trainer/.env").write_text("A=1")
        Path(os.fsdecode(b"trainer/\xff.py")).touch()
        out = "put the file itself there, or leave it out in .dockerignore"
        assert problems(folder, "around") == (
            "trainer/.env: holds variables with secrets, as a rule; leave it out in "
            ".dockerignore, and give the job a service_account or let the program ask Secret "
            "Manager; if it belongs in the image, add it to image.allow_secrets",
            f"trainer/data: is a link to '../../data', out of the folder; {out}",
            f"trainer/far: is a link to '../around/elsewhere', out of the folder; {out}",
            f"trainer/password: is a link to '/etc/passwd', out of the folder; {out}",
            "trainer/pipe: is a named pipe, which no image can hold; leave it out in .dockerignore",
            "trainer/socket: is a socket, which no image can hold; leave it out in .dockerignore",
            "trainer/\\udcff.py: its name is not UTF-8; rename it",
        )


def test_a_name_with_a_line_break_is_told_in_one_line(folder):
    os.mkfifo(folder / "a\nb")
    (line,) = problems(folder)
    assert line.startswith("'a\\nb': is a named pipe")


UNREADABLE = """\
import os, sys
from pathlib import Path
from distlaunch.image.context import read_context
from distlaunch.errors import DistlaunchError
if os.getuid() == 0:
    os.setuid(65534)
try:
    read_context(Path(sys.argv[1]), "")
except DistlaunchError as problem:
    print("\\n".join(problem.lines))
"""


def test_what_cannot_be_read_is_named(folder):
    (folder / "trainer/task.py").chmod(0)
    (folder / "closed").mkdir(mode=0)
    with tempfile.TemporaryDirectory() as name:
        shutil.move(folder, f"{name}/project")
        Path(name).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", UNREADABLE, f"{name}/project"],
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
        )
        Path(name, "project/closed").chmod(0o755)
    remedy = "make it readable, or leave it out in .dockerignore"
    assert done.stdout.splitlines() == [
        f"closed: cannot be read (permission denied); {remedy}",
        f"trainer/task.py: cannot be read (permission denied); {remedy}",
    ]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DistlaunchError, match=r"nowhere: cannot be read \(no such file"):
        read_context(tmp_path / "nowhere", ALL)


WRITER = """\
import sys
number = 0
print("ready", flush=True)
while True:
    number += 1
    with open(sys.argv[1], "r+b") as file:
        file.write(b"%020d" % number)
"""


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    file = tmp_path / "growing"
    file.write_bytes(bytes(50_000_000))
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, file], stdout=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout.readline() == "ready\n"
            (line,) = problems(tmp_path)
        finally:
            writer.kill()
    assert line == "growing: changed while it was read; run again when nothing writes to it"


def test_a_large_context_names_its_largest_files(tmp_path):
    for number in range(8):
        with (tmp_path / f"data-{number}").open("wb") as file:
            file.truncate(number * 4_000_000)
    assert read_context(tmp_path, ALL).report() == (
        "112.0 MB in 8 files go into the image; the largest: data-7 (28.0 MB), data-6 (24.0 MB), "
        "data-5 (20.0 MB), data-4 (16.0 MB), data-3 (12.0 MB); what the program doesn't need there "
        "can be left out in .dockerignore"
    )
