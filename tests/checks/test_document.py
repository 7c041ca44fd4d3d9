"""docs/check.md tells of every code of a problem and no other, and what it shows is so."""

from __future__ import annotations

import ast
import re

import pytest

from distlaunch.checks.price.file import read as read_prices
from distlaunch.job import machine_catalogue

from .corpus.broken import BROKEN
from .corpus.cases import Case, run

SEVERITIES = {"error": "E", "warning": "W"}
ROW = re.compile(r"\| `([a-z-]+)` \| (E|W|E, W) \|")
CODE = re.compile(r"[a-z]+(-[a-z]+)*")
LEAST = 3  # arguments of what makes a problem
# Others have tests of their own: they take TensorFlow, much data or other jobs, or are refused
# when a job is read, and so never get there by the command line.
ELSEWHERE = {
    "chief-count",
    "context-large",
    "job-file-invalid",
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
                yield from ((word, None) for word in words if "-" in str(word))


@pytest.fixture(scope="module")
def made(checkout):
    found = {}
    for file in (checkout / "distlaunch/checks").rglob("*.py"):
        for code, severity in made_in(file.read_text()):
            found.setdefault(code, set()).add(severity)
    return found


@pytest.fixture(scope="module")
def document(checkout):
    return (checkout / "docs/check.md").read_text()


@pytest.fixture(scope="module")
def told(document):
    rows = ROW.findall(document)
    assert len(rows) == len(dict(rows))
    return {code: set(severities.split(", ")) for code, severities in rows}


def test_the_document_tells_of_every_code_as_it_is(made, told):
    assert made.keys() == told.keys()
    plain = {code: severities for code, severities in made.items() if None not in severities}
    assert plain == {code: told[code] for code in plain}


def test_every_code_has_a_broken_job(told):
    assert {case.code for case in BROKEN.values()} | ELSEWHERE == told.keys()


def test_the_files_that_it_shows_are_read(document, tmp_path):
    prices, machines = (block.partition("```")[0] for block in document.split("```yaml\n")[1:])
    (tmp_path / "prices.yaml").write_text(prices)
    (tmp_path / "catalogue.yaml").write_text(machines)
    paid = read_prices(tmp_path / "prices.yaml").of("us-central1", "SPOT")
    assert {str(amount) for amount in paid.values()} == {"0.09", "0.14"}
    known = machine_catalogue.load(tmp_path / "catalogue.yaml")
    assert known.machines["n9-standard-8"].takes("NVIDIA_L4", 2)
    assert known.offers("africa-south1", "NVIDIA_L4")
    assert known.offers("us-west4", "NVIDIA_TESLA_T4") is False


def test_it_tells_of_every_key(document, written):
    _, _, table = document.partition("## `--json`")
    rows = re.findall(r"^\| (`.*?`) \| (.*) \|$", table.partition("## ")[0], re.MULTILINE)
    keys = {key for names, _ in rows for key in re.findall(r"`(\w+)`", names)}
    report = run("check", "--offline", "--json", folder=written(Case())).report
    assert report.keys() == keys
    told = dict(rows)
    for name in ("data", "image"):
        assert report[name].keys() <= set(re.findall(r"`(\w+)`", told[f"`{name}`"]))
    assert report["pools"][0].keys() == set(re.findall(r"`(\w+)`", told["`pools`"]))
    assert set(re.findall(r"`(\w+)`", told["`price`"])) <= report["price"].keys()
