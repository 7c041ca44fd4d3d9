"""What differs between operating systems, on Linux and on Windows as far as Linux can be it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path, PureWindowsPath
from unittest.mock import patch

import pytest
import windows
from hypothesis import given
from hypothesis import strategies as st

from distlaunch import docker_client, files
from distlaunch.errors import DistlaunchError
from distlaunch.image import pip_secrets
from distlaunch.runs import fetch

PACKAGE = Path(__file__).parents[1] / "distlaunch"
NAMES = st.text(st.sampled_from("a.:/\\\0 C"), max_size=8)
OPENS = re.compile(r"\b(?:open|fdopen|read_text|write_text)\(|text=True")
FOLDER = PureWindowsPath("D:/jobs")

LOCKS = """
import json, subprocess, sys, threading, time
from pathlib import Path
from distlaunch import files

path, seen, count = Path("lock"), [], 0

def is_free():
    try:
        with files.lock(path, wait=False):
            return files.may_be_locked(path) or "not seen to be locked"
    except BlockingIOError:
        return False

def add():
    global count
    for _ in range(3):
        with files.lock(path, wait=True):
            before = count
            time.sleep(0.005)
            count = before + 1

if sys.argv[1:]:
    with files.lock(path, wait=False):
        print("locked", flush=True)
        time.sleep(600)
path.write_bytes(b"content")
with files.lock(path, wait=False):
    seen += [is_free(), files.may_be_locked(path), path.read_text("utf-8")]
seen += [is_free(), files.may_be_locked(path)]
threads = [threading.Thread(target=add) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
holder = subprocess.Popen([*sys.orig_argv, "hold"], stdout=subprocess.PIPE)
holder.stdout.readline()
seen += [count, is_free(), files.may_be_locked(path)]
holder.kill()
holder.wait()
holder.stdout.close()
folder = Path("folder")
folder.mkdir()
with files.lock(folder, wait=False):
    seen += [is_free()]
    path = folder
    seen += [is_free(), [*map(str, folder.iterdir())]]
print(json.dumps(seen))
"""

ON_WINDOWS = """
import json, os, signal, sys, time
from pathlib import Path

from distlaunch import files, notify, platforms
from distlaunch.background import BackgroundTask
from distlaunch.engines.vertex import auth
from distlaunch.image.context import read_context
from distlaunch.stop_signals import StopSignals

answers = {}
rename = Path.replace
failures = iter([PermissionError, PermissionError])

def replace(source, target):
    for error in failures:
        raise error
    return rename(source, target)

Path.replace = replace
files.atomic_write(Path("record"), "new", sync=True)
answers["record"] = Path("record").read_text("utf-8")
Path(f".linked.{os.getpid()}.part").symlink_to("victim")
try:
    files.atomic_write(Path("linked"), "through a symlink")
except OSError as error:
    answers["refused"] = error.strerror
answers["context"] = [(each.path, each.mode) for each in read_context(Path("code"), "").entries]
answers["project"] = auth.default_project()
with StopSignals() as signals:
    signal.raise_signal(signal.SIGTERM)
    import select
    select.select([signals], [], [], 5)
    answers["signals"] = signals.received()
notify.TIMEOUT = 0.3
answers["notified"] = notify._notify("sleep 60", {"job": "j", "state": "FAILED", "duration": 1})
answers["result"] = BackgroundTask(lambda: time.sleep(0.2) or 7).result()
print(json.dumps(answers))
"""


@pytest.mark.parametrize("become", ["", windows.BECOME], ids=["linux", "windows"])
def test_locks_exclude_and_end_with_their_holder(tmp_path, become):
    seen = windows.python(tmp_path, "-c", become + LOCKS, TMPDIR=str(tmp_path))
    assert seen[:5] == [False, True, "content", True, False]
    assert seen[5:8] == [9, False, True]  # threads, another process
    assert seen[8:] == [True, False, []]  # once that is killed; a folder


def test_the_rest_on_windows(tmp_path):
    configurations = tmp_path / "AppData/gcloud/configurations"
    configurations.mkdir(parents=True)
    (configurations / "config_default").write_text("[core]\nproject = of-gcloud\n")
    code = tmp_path / "code"
    (code / "folder").mkdir(parents=True)
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "data.csv").write_text("1\n")
    (code / "data.csv").chmod(0o777)
    (code / "folder/link").symlink_to("../data.csv")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "taskkill").write_text('#!/bin/sh\nkill -9 -$4; echo "$@" >killed\n')
    (programs / "taskkill").chmod(0o755)
    answers = windows.python(
        tmp_path,
        *("-c", windows.BECOME + ON_WINDOWS),
        APPDATA=str(tmp_path / "AppData"),
        HOME=str(tmp_path),
        PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
        **dict.fromkeys(("CLOUDSDK_CONFIG", "GOOGLE_CLOUD_PROJECT"), ""),
    )
    assert (tmp_path / "killed").read_text().startswith("/F /T /PID ")
    assert not (tmp_path / "victim").exists()
    assert answers == {
        "record": "new",
        "refused": "Too many levels of symbolic links",
        "context": [
            ["data.csv", 0o644],
            ["folder", 0o755],
            ["folder/link", 0o777],
            ["run.sh", 0o755],
        ],
        "project": "of-gcloud",
        "signals": [15],
        "notified": "the command did not end within 0.3 s",
        "result": 7,
    }


@given(NAMES)
def test_a_file_name_stays_in_its_folder_on_windows(name):
    with patch.object(files, "Path", PureWindowsPath):
        if files.is_file_name(name):
            assert (FOLDER / name).parent == FOLDER
            assert (FOLDER / name).name == name


@given(NAMES)
def test_a_fetched_file_stays_in_its_folder_on_windows(name):
    with patch.object(fetch, "Path", PureWindowsPath):
        try:
            path = fetch._path_in(FOLDER, name)
        except DistlaunchError:
            return
    assert FOLDER in path.parents
    assert ".." not in path.parts


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(2, "Docker is not running at npipe:x; start Docker "), (5, "no permission to use Docker ")],
)
def test_docker_behind_a_named_pipe(code, remedy):
    """The exception of pywin32 is no OSError."""
    error = type("error", (Exception,), {"winerror": code})("CreateFile", "…")
    assert docker_client._connection_problem(error, "npipe:x").startswith(remedy)


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "cp1252:strict"},
    ],
)
def test_output_in_an_encoding_without_its_characters(tmp_path, env):
    done = subprocess.run(
        [sys.executable, "-m", "distlaunch", "init", "→"],
        cwd=tmp_path,
        env=os.environ | env,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"created project job in ")
    assert (tmp_path / "→/distlaunch.yaml").exists()


def is_text(mode: ast.expr | None) -> bool:
    return mode is None or (isinstance(mode, ast.Constant) and "b" not in str(mode.value))


def without_encoding(call: ast.Call) -> bool:
    """Whether a call opens text in the encoding of the system."""
    function = call.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    words: dict[str | None, ast.expr] = {word.arg: word.value for word in call.keywords}
    arguments = {**dict(enumerate(call.args)), **words}
    if "encoding" in words or None in words:
        return False
    if name in ("read_text", "write_text"):
        return len(call.args) < ["read_text", "write_text"].index(name) + 1
    if name in ("open", "fdopen") and not isinstance(function, ast.Attribute):
        return is_text(arguments.get(1, words.get("mode")))
    if name == "open" and getattr(function.value, "id", "") not in ("os", "tarfile"):
        return is_text(arguments.get(0, words.get("mode")))
    return "text" in words and name in ("run", "Popen", "check_output")


def test_text_has_an_encoding_wherever_it_is_opened():
    """Windows' own is cp1252, in which a job file is not written."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if OPENS.search(text) else ():
            if isinstance(node, ast.Call):
                assert not without_encoding(node), f"{path}:{node.lineno}"


def test_calls_without_an_encoding_are_found():
    calls = ("open(a)", "open(a, 'w')", "a.open()", "a.read_text()", "a.write_text(b)")
    for code in (*calls, "subprocess.run(a, text=True)", "open(a, mode='r')"):
        assert without_encoding(ast.parse(code, mode="eval").body), code
    for code in ("open(a, 'rb')", "a.open('wb')", "a.read_text('utf-8')", "run(a)"):
        assert not without_encoding(ast.parse(code, mode="eval").body), code


@pytest.mark.parametrize("names", [["_netrc"], ["_netrc", ".netrc"]])
def test_the_netrc_file_of_windows_is_read(tmp_path, monkeypatch, names):
    for name in names:
        (tmp_path / name).write_text(name)
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(pip_secrets, "_pip_settings", dict)
    assert pip_secrets.dockerfile_secrets() == {"netrc": names[-1]}
