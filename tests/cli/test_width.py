"""What commands print on a terminal fits its width."""

from __future__ import annotations

import json
import re

import pytest
from rich.cells import cell_len

from distlaunch.scaffold import plan

from .terminal import run_on_terminal

COLOUR = re.compile(r"\x1b\[\d*m")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("width") / "digits"
    plan(folder, "digits").write(folder)
    return folder


def screen(project, *words: str, columns: int, **env: str) -> list[str]:
    _, shown = run_on_terminal(*words, cwd=project, columns=columns, env=env)
    return COLOUR.sub("", shown).splitlines()


@pytest.mark.parametrize(
    "words", [("init", "--list"), ("check", "--offline"), ("local", "--worker", "3")]
)
def test_lines_are_wrapped_between_words_below_their_labels(project, words):
    lines = screen(project, *words, columns=80)
    for line in lines:
        label, _, link = line.rpartition("  ")
        assert cell_len(line) <= 80 or (len(link) > 60 and " " not in link), label
    whole = screen(project, *words, columns=1000)
    assert len(lines) > len(whole)
    assert " ".join(lines).split() == " ".join(whole).split()


def test_json_and_dumb_terminals_get_whole_lines(project):
    (line,) = screen(project, "check", "--offline", "--json", columns=40)
    assert json.loads(line)["ready"] is False
    assert max(map(len, screen(project, "init", "--list", columns=40, TERM="dumb"))) > 60


def test_a_narrow_table_names_the_columns_that_it_leaves_out(project):
    lines = screen(project, "check", "--offline", "--compare-machines", columns=30)
    assert "(vCPUs, GB: in a wider terminal)" in " ".join(" ".join(lines).split())
    assert not any("vCPUs" in line and "hour" in line for line in lines)
