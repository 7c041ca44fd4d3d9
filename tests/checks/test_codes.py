"""The codes of problems: docs/check.md tells of each, and no other."""

from __future__ import annotations

import ast
import re

import pytest

from .corpus.broken import BROKEN

SEVERITIES = {"error": "E", "warning": "W"}
ROW = re.compile(r"\| `([a-z-]+)` \| (E|W|E, W) \|")
CODE = re.compile(r"[a-z]+(-[a-z]+)*")
LEAST = 3  # arguments of what makes a problem
# Others have tests of their own: they take TensorFlow, much data or other jobs, or are refused
# when a job is read, and so never get there by the command line.
ELSEWHERE = {
    "chief-count",
    "context-large",
    "no-credentials",
    "quota-in-use",
    "registry-unreachable",
    "run-failed",
    "run-skipped",
}


def made_in(source):
    """Yield the codes of the problems that a module makes, and how severe, where that is plain."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(code)), *rest]):
                if CODE.fullmatch(code) and len(rest) + 1 >= LEAST:
                    yield code, SEVERITIES.get(name)
            case ast.Assign(targets=[ast.Name(id="code")], value=value):
                words = [each.value for each in ast.walk(value) if isinstance(each, ast.Constant)]
                yield from ((code, None) for code in words if CODE.fullmatch(str(code)))


@pytest.fixture(scope="module")
def made(checkout):
    found = {}
    for file in (checkout / "distlaunch/checks").rglob("*.py"):
        for code, severity in made_in(file.read_text()):
            found.setdefault(code, set()).add(severity)
    return found


@pytest.fixture(scope="module")
def told(checkout):
    rows = ROW.findall((checkout / "docs/check.md").read_text())
    assert len(rows) == len(dict(rows))
    return {code: set(severities.split(", ")) for code, severities in rows}


def test_the_document_tells_of_every_code_as_it_is(made, told):
    assert made.keys() == told.keys()
    plain = {code: severities for code, severities in made.items() if None not in severities}
    assert plain == {code: told[code] for code in plain}


def test_every_code_has_a_broken_job(told):
    assert {case.code for case in BROKEN.values()} | ELSEWHERE == told.keys()
