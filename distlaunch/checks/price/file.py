"""The user's prices: ``distlaunch.prices.yaml``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BeforeValidator, Field

from distlaunch.job.model import Strategy
from distlaunch.job.schema import RegionName, Section, expected_error, one_of
from distlaunch.job.validation import validate
from distlaunch.job.yaml_document import YamlProblem, job_file_error, read_document

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.job.yaml_document import Document, Location

FILE_NAME = "distlaunch.prices.yaml"  # in the project's folder

_REGIONS = "regions"


def _matching(pattern: str, expected: str) -> BeforeValidator:
    def parse(text: Any) -> str:
        if not isinstance(text, str) or not re.fullmatch(pattern, text, re.ASCII):
            raise expected_error(expected)
        return text

    return BeforeValidator(parse)


_Currency = Annotated[str, _matching(r"[A-Z]{3}", "a currency such as USD")]
_Item = Annotated[
    str,
    _matching(
        r"[a-z][a-z0-9]*(-[a-z0-9]+)+|(NVIDIA|TPU)_[A-Z0-9_]+",
        "a machine type or accelerator such as n1-standard-8 or NVIDIA_TESLA_T4",
    ),
]
_Price = Annotated[
    Decimal, _matching(r"[0-9]{1,9}(\.[0-9]{1,12})?", "a price per hour such as 0.42")
]
_StrategyName = Annotated[str, one_of(*get_args(Strategy))]


class PriceFile(Section):
    """The prices per hour of machine types (without accelerators) and of single accelerators."""

    currency: _Currency = "USD"
    regions: dict[RegionName, dict[_StrategyName, dict[_Item, _Price]]] = Field(
        default_factory=dict
    )


def read_price_file(path: Path) -> PriceFile:
    """Read a price file.

    Raises
    ------
    DistlaunchError
        If it cannot be read, or with all its problems.
    """
    section, problems = validate(_NestedRegions(read_document(path)), PriceFile)
    if section is None or problems:
        prefix = f"{_REGIONS}."
        in_file = (
            YamlProblem(each.location, each.message.removeprefix(prefix)) for each in problems
        )
        raise job_file_error(path, in_file)
    return section


class _NestedRegions:
    """A document with its regions below one key, as in `PriceFile`."""

    def __init__(self, document: Document) -> None:
        regions = dict(document.data)
        currency = {key: regions.pop(key) for key in ("currency",) if key in regions}
        self.data: dict[str, Any] = {**currency, _REGIONS: regions}
        self.problems: list[YamlProblem] = document.problems
        self._document = document

    def location(self, path: tuple[int | str, ...], *, of_key: bool = False) -> Location:
        in_file = path[1:] if path[0] == _REGIONS else path
        return self._document.location(in_file, of_key=of_key)
