"""Broken files of a job, and every line that is reported for each."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

from distlaunch.errors import DistlaunchError, JobFileError
from distlaunch.job import machine_catalogue, validation, yaml_document
from distlaunch.job.load import load_job, load_job_file
from distlaunch.job.vertex import proto
from distlaunch.price.book import read_price_file

SMALLEST = "name: digits\ncluster: {chief: {machine: n1-standard-4}}\n"
BROKEN = yaml.safe_load(Path(__file__).with_name("broken_files.yaml").read_text(encoding="utf-8"))
READERS = {
    "distlaunch.yaml": load_job_file,
    "config.yaml": lambda file: load_job(file.parent, config=file),
    "distlaunch.catalogue.yaml": machine_catalogue.load,
    "distlaunch.prices.yaml": read_price_file,
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in BROKEN for name in BROKEN[kind]]
)
def test_all_problems_are_reported_at_once_with_their_location(tmp_path, kind, name):
    lines = BROKEN[kind][name].splitlines(keepends=True)
    starts = [line[3:].rstrip("\n") for line in lines if line.startswith(">> ")]
    file = tmp_path / kind
    file.write_text("".join(line for line in lines if not line.startswith(">> ")))
    with pytest.raises(JobFileError) as error:
        READERS[kind](file)
    reported = [line.removeprefix(f"{file}:") for line in error.value.lines]
    assert len(reported) == len(starts), reported
    assert [line[: len(start)] for line, start in zip(reported, starts, strict=True)] == starts


@pytest.mark.parametrize(
    ("before", "path", "module"),
    [("", "", validation), ("vertex:\n", "vertex.", proto)],
    ids=["keys", "fields"],
)
def test_many_unknown_keys_take_bounded_work(tmp_path, monkeypatch, before, path, module):
    hint, pairs = Mock(wraps=module.did_you_mean), Mock(wraps=yaml_document._pairs)
    monkeypatch.setattr(module, "did_you_mean", hint)
    monkeypatch.setattr(yaml_document, "_pairs", pairs)
    indent = " " if before else ""
    keys = "".join(f"{indent}key{number}: x\n" for number in range(250))
    file = tmp_path / "distlaunch.yaml"
    file.write_text(SMALLEST + before + keys)
    with pytest.raises(JobFileError) as error:
        load_job_file(file)
    *lines, last = error.value.lines
    assert [line.split(": ")[1] for line in lines] == [f"{path}key{n}" for n in range(100)]
    assert last == f"{file}: and 150 more problems"
    assert hint.call_count == 100
    assert pairs.call_count < 10  # each section is looked through once, not for each problem


def test_a_file_too_large_for_a_job_is_not_read_and_one_too_deep_is_refused(tmp_path):
    file = tmp_path / "distlaunch.yaml"
    file.write_text(SMALLEST + "# " + "x" * 999_900 + "\n")
    assert load_job_file(file).name == "digits"
    file.write_text(SMALLEST + "# " + "x" * 1_000_000 + "\n")
    size = f"{file.stat().st_size:,} bytes, expected at most 1,000,000"
    with pytest.raises(DistlaunchError, match=f": too large: {size}$"):
        load_job_file(file)
    file.write_text(SMALLEST + "vertex: " + "[" * 5000)
    with pytest.raises(JobFileError, match=":1:1: nested too deeply"):
        load_job_file(file)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: path.mkdir(), "not a file; expected text in YAML"),
        (lambda path: path.symlink_to("nowhere"), "broken symlink; fix or remove it"),
        (lambda path: None, "no such file; correct --config: it is relative to the current folder"),
        (lambda path: path.write_bytes(b"name: digits\nmodule: tr\xff\n"), "2:11: not UTF-8 text"),
    ],
)
def test_unreadable_files(tmp_path, make, line):
    file = tmp_path / "config.yaml"
    make(file)
    with pytest.raises(DistlaunchError) as error:
        load_job(tmp_path, config=file)
    assert str(error.value).replace(f"{file}:", "").lstrip() == line
