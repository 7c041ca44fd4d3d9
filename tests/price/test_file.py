"""The user's price file: problems with their location."""

from __future__ import annotations

import pytest

from distlaunch.errors import JobFileError
from distlaunch.price.book import read_price_file

BROKEN = {
    "a region and a currency": (
        "n1-standard: {}\ncurrency: dollars\n",
        [
            "1:1: n1-standard: expected a region such as us-central1, got 'n1-standard'",
            "2:11: currency: expected a currency such as USD, got 'dollars'",
        ],
    ),
    "a region without strategies": (
        "us-central1: 0.42\n",
        ["1:14: us-central1: expected names with values, one a line, got '0.42'"],
    ),
    "a strategy": (
        "us-central1:\n  SPOTS: {n1-standard-8: 1}\n",
        [
            "2:3: us-central1.SPOTS: expected STANDARD, SPOT or FLEX_START, got 'SPOTS'; did you "
            "mean 'SPOT'?"
        ],
    ),
    "an item and prices": (
        "us-central1: {SPOT: {T4: 1, n1-standard-4: $1,\n  n1-standard-8: -1, n1-highmem-8: }}\n",
        [
            "1:22: us-central1.SPOT.T4: expected a machine type or accelerator such as",
            "1:44: us-central1.SPOT.n1-standard-4: expected a price per hour such as 0.42, got '$1",
            "2:18: us-central1.SPOT.n1-standard-8: expected a price per hour such as 0.42, got '-1",
            "2:35: us-central1.SPOT.n1-highmem-8: expected a price per hour such as 0.42, got noth",
        ],
    ),
    "a duplicate": (
        "us-central1:\n  SPOT:\n    n1-standard-8: 1\n    n1-standard-8: 2\n",
        ["4:5: n1-standard-8: duplicate key (first defined on line 3)"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), BROKEN.values(), ids=BROKEN)
def test_all_problems_of_a_file_are_reported_with_their_location(tmp_path, text, expected):
    path = tmp_path / "distlaunch.prices.yaml"
    path.write_text(text)
    with pytest.raises(JobFileError) as refused:
        read_price_file(path)
    for line, part in zip(refused.value.lines, expected, strict=True):
        assert f"distlaunch.prices.yaml:{part}" in line
