"""The codes of problems are those of docs/look-up/check-codes.md; check.md's examples are valid."""

from __future__ import annotations

import re

import pytest

from distlaunch.job import machine_catalogue
from distlaunch.price.book import read_price_file

from .corpus.cases import BROKEN, Case

SECTION = re.compile(r"^### ([a-z-]+)\n\n(Error or warning|Error|Warning): ", re.MULTILINE)
REPORTED = re.compile(r'\b(?:error|warning|report)\(\s*"([a-z-]+)"')
# Tested elsewhere: they need TensorFlow, much data or running jobs, or occur when a job is read.
ELSEWHERE = {
    # See tests/cli/test_cloud_build.py.
    "cloud-build-bucket",
    "cloud-build-emulator",
    "cloud-build-registry",
    "cloud-build-secrets",
    "context-large",
    "job-file-invalid",
    "no-credentials",
    "quota-in-use",
    "registry-unreachable",
    "requirements-missing",
    "run-failed",
    "run-skipped",
    # On Slurm; see tests/engines/slurm.
    "job-dir-in-use",
    "no-slurm-folder",
    "slurm-folder",
    "slurm-gpus",
    "slurm-limit",
    "slurm-partition",
    "slurm-python",
    "slurm-refused",
    "slurm-unreachable",
}


@pytest.fixture(scope="module")
def document(checkout):
    return (checkout / "docs/do/check.md").read_text()


def test_the_document_has_each_code_of_the_source_and_of_the_corpus(checkout):
    text = (checkout / "docs/look-up/check-codes.md").read_text()
    sections = SECTION.findall(text)
    documented = dict(sections)
    assert len(sections) == len(documented) == text.count("\n### ") == text.count("\nFix: ")
    source = "".join(file.read_text() for file in (checkout / "distlaunch/checks").rglob("*.py"))
    assert set(REPORTED.findall(source)) <= documented.keys()
    assert [code for code in documented if f'"{code}"' not in source] == []
    assert {case.code for case in BROKEN.values()} | ELSEWHERE == documented.keys()
    for case in BROKEN.values():
        assert case.severity in documented[case.code].lower()


def test_its_files_are_valid(document, tmp_path):
    prices, machines = (block.partition("```")[0] for block in document.split("```yaml\n")[1:])
    (tmp_path / "prices.yaml").write_text(prices)
    (tmp_path / "catalogue.yaml").write_text(machines)
    paid = read_price_file(tmp_path / "prices.yaml").regions["us-central1"]["SPOT"]
    assert {str(amount) for amount in paid.values()} == {"0.09", "0.14"}
    known = machine_catalogue.load(tmp_path / "catalogue.yaml")
    assert known.machines["n9-standard-8"].takes("NVIDIA_L4", 2)
    assert known.offers("africa-south1", "NVIDIA_L4")
    assert known.offers("us-west4", "NVIDIA_TESLA_T4") is False


def test_it_has_each_key_of_json(document, write, run):
    _, _, table = document.partition("## Read the result from a program")
    rows = re.findall(r"^\| (`.*?`) \| (.*) \|$", table.partition("## ")[0], re.MULTILINE)
    keys = {key for names, _ in rows for key in re.findall(r"`(\w+)`", names)}
    report = run("check", "--offline", "--json", folder=write(Case())).report
    assert report.keys() == keys
    described = dict(rows)
    for name in ("data", "image"):
        assert report[name].keys() <= set(re.findall(r"`(\w+)`", described[f"`{name}`"]))
    assert report["pools"][0].keys() == set(re.findall(r"`(\w+)`", described["`pools`"]))
    assert set(re.findall(r"`(\w+)`", described["`price`"])) <= report["price"].keys()
