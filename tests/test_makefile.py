"""The Makefile finds a Python and fills its environments; CI runs its targets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = ("demo", "test", "quick", "docs")


@pytest.fixture
def folder(checkout, tmp_path) -> Path:
    """An empty checkout: the Makefile and empty files that it depends on."""
    shutil.copy(checkout / "Makefile", tmp_path)
    (tmp_path / "requirements").mkdir()
    for name in ("pyproject.toml", *(f"requirements/{each}.txt" for each in TARGETS)):
        (tmp_path / name).touch()
    return tmp_path


def script(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def stamp(folder: Path) -> None:
    """Have the environment be filled."""
    (folder / ".venv").mkdir()
    for name in (".made", *(f".{each}" for each in TARGETS)):
        (folder / ".venv" / name).touch()


def make(
    folder: Path, *words: str, path: str = "/usr/bin:/bin"
) -> subprocess.CompletedProcess[str]:
    # `make test` runs these tests, and this make is no part of that one.
    outer = ("PYTHON", "MAKELEVEL", "MAKEFLAGS", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=folder,
        env=environment | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_every_target(folder):
    phony = re.search(r"^\.PHONY: (.*)", (folder / "Makefile").read_text(), re.MULTILINE)
    assert phony
    lines = make(folder).stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == [f"make {name}" for name in phony[1].split()]


def test_shim_without_a_python_is_skipped(folder):
    shims = folder / "shims"
    script(shims / "python3.13", "echo 'no such version' >&2; exit 127")
    script(shims / "python3.12", 'test "$1" = -c || { mkdir -p "$3/bin"; echo "$@" >"$3/made"; }')
    done = make(folder, ".venv/.made", path=f"{shims}:/usr/bin:/bin")
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / ".venv" / "made").read_text() == "-m venv .venv\n"


@pytest.mark.parametrize(
    "line",
    [
        "exit 127",
        "exec python3 -c 'import sys; sys.exit(1)'",  # as a Python without ensurepip
    ],
)
def test_missing_python_is_reported_in_one_line(folder, line):
    script(folder / "bin" / "other", line)
    done = make(folder, "demo", f"PYTHON={folder}/bin/other")
    assert done.returncode != 0
    message, *rest = done.stderr.splitlines()
    assert message == (
        "needs Python 3.10 to 3.13 with venv and ensurepip; not found among: "
        f"{folder}/bin/other (use another: make PYTHON=/path/to/python3.12)"
    )
    assert [line for line in rest if not line.startswith("make: ***")] == []
    assert not (folder / ".venv" / "bin" / "pip").exists()


def test_demo_ends_with_the_way_to_its_project(folder):
    stamp(folder)
    script(folder / ".venv" / "bin" / "distlaunch", "mkdir -p build/demo/digits")
    [line] = make(folder, "demo").stdout.splitlines()
    assert line == "now: . .venv/bin/activate; cd build/demo/digits"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("changed", ["pyproject.toml", "requirements/{}.txt"])
def test_locked_versions_are_installed_again_when_dependencies_change(folder, target, changed):
    stamp(folder)
    assert "pip install" not in make(folder, "-n", target).stdout
    newer = (folder / ".venv" / ".test").stat().st_mtime + 10
    os.utime(folder / changed.format(target), (newer, newer))
    commands = make(folder, "-n", target).stdout
    assert f"--no-deps --require-hashes -r requirements/{target}.txt &&" in commands
    assert commands.count("pip install") == commands.count("--no-deps") == 2
    assert "-m venv" not in commands


def test_fuzz_stops_at_the_first_failed_round(folder):
    stamp(folder)
    script(folder / ".venv" / "bin" / "python", 'echo "$@"; test ! -e failed')
    options = "-m pytest --numprocesses=2 --quiet -m hypothesis --hypothesis-profile=fuzz"
    assert make(folder, "fuzz", "ROUNDS=2").stdout.splitlines() == [options] * 2
    (folder / "failed").touch()
    done = make(folder, "fuzz")
    assert (done.returncode != 0, done.stdout.splitlines()) == (True, [options])


def ci(folder: Path, checkout: Path) -> str:
    """Run CI's script with a make that does nothing, and return what it prints."""
    (folder / ".ci").mkdir()
    shutil.copy(checkout / ".ci" / "run", folder / ".ci")
    script(folder / "bin" / "make", "echo running $*")
    (folder / ".venv").mkdir()
    script(folder / ".venv" / "bin" / "python", "echo Python 3.12.1")
    return subprocess.run(
        [folder / ".ci" / "run"],
        env={"PATH": f"{folder / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_ci_runs_every_target_and_the_quick_tests_on_the_oldest_python(folder, checkout):
    script(folder / "bin" / "python3.10", "exit 0")
    quick = "quick PYTHON=python3.10 VENV=.venv-3.10"
    lines = ci(folder, checkout).splitlines()
    assert [line for line in lines if line.startswith("running")] == [
        "running check",
        "running docs",
        "running test",
        "running demo",
        f"running {quick}",
    ]
    assert re.fullmatch(rf" *\d+ s  make {re.escape(quick)}", lines[-1])


def test_ci_reports_that_there_is_no_oldest_python(folder, checkout):
    script(folder / "bin" / "python3.10", "exit 127")  # a shim without a Python
    lines = ci(folder, checkout).splitlines()
    assert lines[-1] == (
        "NOT RUN on Python 3.10, which was not found; the oldest was Python 3.12.1"
    )
    assert not any("quick" in line for line in lines)
