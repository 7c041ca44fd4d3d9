"""What CONTRIBUTING.md and AGENTS.md name exists: files, targets of make, fixtures, markers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDES = ("CONTRIBUTING.md", "AGENTS.md")
PATH = re.compile(r"\.?(?:[\w-]+/)+[\w.-]*|README\.md|CONTRIBUTING\.md|pyproject\.toml")


def words_of(text: str) -> list[str]:
    """Return the words in backquotes, in links and in commands."""
    marked = re.findall(r"`([^`\n]+)`|\]\(([^)#:]+)\)", text)
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    return " ".join(map("".join, marked)).split() + re.sub("#.*", "", commands).split()


@pytest.mark.parametrize("guide", GUIDES)
def test_named_files_and_targets_exist(guide):
    text = (ROOT / guide).read_text("utf-8")
    paths = set(filter(PATH.fullmatch, words_of(text)))
    assert len(paths) >= 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert targets
    assert targets <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_named_fixtures_and_markers_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    _, fixtures, markers = re.split(r"^\| (?:fixture|marker).*\n", text, flags=re.MULTILINE)
    rows = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
    conftest = (ROOT / "tests/conftest.py").read_text("utf-8")
    defined = re.findall(r"^@pytest\.fixture.*\ndef (\w+)", conftest, re.MULTILINE)
    assert {"cli", "slurm"} <= set(rows.findall(fixtures)) <= set(defined)
    command = [sys.executable, "-m", "pytest", "--markers"]
    known = subprocess.check_output(command, cwd=ROOT, text=True)
    names = rows.findall(markers)
    assert len(names) == 3
    assert [name for name in names if f"@pytest.mark.{name}:" not in known] == []
