"""Price files of users, and what is told of broken ones."""

from __future__ import annotations

from decimal import Decimal

import pytest

from distlaunch.checks.price.file import read
from distlaunch.errors import DistlaunchError, JobFileError

GOOD = """\
currency: EUR
us-central1:
  STANDARD: {n1-standard-8: 0.42, NVIDIA_TESLA_T4: "0.35"}
  SPOT: {n1-standard-8: 0}
europe-west4:
  FLEX_START: {a2-highgpu-1g: 2}
"""

BROKEN = {
    "nothing": ("", "1:1: expected keys with values, such as 'name: digits'"),
    "no YAML": ("a: [", "1:5: not YAML: while parsing a flow node, expected the node content, but"),
    "a currency": (
        "us-central1: {}\ncurrency: dollars\n",
        "2:11: currency: expected a currency, as USD, got 'dollars'",
    ),
    "a region": (
        "n1-standard: {}\n",
        "1:1: n1-standard: expected currency, or a region, as us-central1, got 'n1-standard'",
    ),
    "a region without strategies": (
        "us-central1: 0.42\n",
        "1:14: us-central1: expected a section with STANDARD, SPOT, FLEX_START, got '0.42'",
    ),
    "a strategy": (
        "us-central1:\n  SPOTS: {n1-standard-8: 1}\n",
        "2:3: us-central1.SPOTS: expected STANDARD, SPOT or FLEX_START, got 'SPOTS'; did you mean "
        "'SPOT'?",
    ),
    "a strategy without prices": (
        "us-central1: {SPOT: [1]}\n",
        "1:21: us-central1.SPOT: expected machine types and accelerators with what they cost an "
        "hour, got a list",
    ),
    "a name": (
        "us-central1: {SPOT: {T4: 1}}\n",
        "1:22: us-central1.SPOT.T4: expected a machine type or an accelerator, as n1-standard-8 or "
        "NVIDIA_TESLA_T4, got 'T4'",
    ),
    "a price": (
        "us-central1: {SPOT: {n1-standard-8: $1}}\n",
        "1:37: us-central1.SPOT.n1-standard-8: expected what it costs an hour, as 0.42, got '$1'",
    ),
    "a price below nothing": ("us-central1: {SPOT: {n1-standard-8: -1}}\n", "got '-1'"),
    "a price that is no number": ("us-central1: {SPOT: {n1-standard-8: .nan}}\n", "got '.nan'"),
    "no price": ("us-central1: {SPOT: {n1-standard-8: }}\n", "got nothing"),
    "a thing twice": (
        "us-central1:\n  SPOT:\n    n1-standard-8: 1\n    n1-standard-8: 2\n",
        "4:5: n1-standard-8: duplicate key (first defined on line 3)",
    ),
}


def test_prices_by_region_strategy_and_thing(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(GOOD)
    found = read(path)
    assert found.currency == "EUR"
    assert found.of("us-central1", "STANDARD") == {
        "n1-standard-8": Decimal("0.42"),
        "NVIDIA_TESLA_T4": Decimal("0.35"),
    }
    assert found.of("us-central1", "SPOT") == {"n1-standard-8": 0}
    assert found.of("europe-west4", "FLEX_START") == {"a2-highgpu-1g": 2}
    assert found.of("europe-west4", "SPOT") == found.of("asia-east1", "SPOT") == {}


@pytest.mark.parametrize(("text", "expected"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_told_with_its_place(tmp_path, monkeypatch, text, expected):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "distlaunch.prices.yaml"
    path.write_text(text)
    with pytest.raises(JobFileError) as refused:
        read(path)
    [line] = refused.value.lines
    assert line.startswith("distlaunch.prices.yaml:")
    assert expected in line


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("currency: 1\nus: {}\nus-central1: {SPOT: {x: 1, n1-standard-8: x}, ON: 1}\n")
    with pytest.raises(JobFileError) as refused:
        read(path)
    places = [line.split(":", 1)[1].rsplit(": expected")[0] for line in refused.value.lines]
    assert [place.split(": ")[0] for place in places] == ["1:11", "2:1", "3:22", "3:43", "3:47"]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DistlaunchError, match="no such file"):
        read(tmp_path / "own.yaml")
