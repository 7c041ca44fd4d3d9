"""The prices of a region: the user's, from ``distlaunch.prices.yaml``, or bundled list prices.

The list prices are Compute Engine's. Vertex AI charges 15 % more: on demand by prices of its own,
with Spot by a management fee of 15 % of the price on demand. Known pairs agree: n1-standard-4 in
us-central1 is 0.189999 USD on demand and 0.21849885 with Vertex AI
(https://cloud.google.com/vertex-ai/pricing, October 2026).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, get_args

from pydantic import BaseModel, RootModel

from distlaunch.files import display_path
from distlaunch.job.model import Strategy
from distlaunch.job.validation import validate
from distlaunch.job.value_types import RegionName, one_of, text
from distlaunch.job.yaml_document import job_file_error, read_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.vertex.view import JobRequest

FILE_NAME = "distlaunch.prices.yaml"  # in the project's folder

_LIST = Path(__file__).with_name("list_prices.json")  # written by tools/make_list_prices.py
_FEE = Decimal("0.15")  # of the price on demand


class ListPrices(NamedTuple):
    """Compute Engine's prices in USD per hour, on demand and Spot, of a day."""

    date: date
    prices: Mapping[str, Mapping[str, tuple[Decimal, Decimal]]]

    @property
    def source(self) -> str:
        """Their source, for a message."""
        return f"list prices of {self.date.isoformat()}"

    def price(self, name: str, region: str, strategy: Strategy) -> Decimal | None:
        """Return Vertex AI's price of a machine or an accelerator, None if it is not known."""
        prices = self.prices.get(name, {}).get(region)
        if prices is None or strategy == "FLEX_START":
            return None
        on_demand, spot = prices
        return (on_demand if strategy == "STANDARD" else spot) + on_demand * _FEE


@cache
def load_list_prices() -> ListPrices:
    """Return the bundled list prices."""
    content = json.loads(_LIST.read_bytes(), parse_float=Decimal)
    return ListPrices(date.fromisoformat(content["date"]), content["prices"])


class UnitPrice(NamedTuple):
    """The price of one item for an hour, and its source."""

    amount: Decimal
    source: str
    is_estimate: bool = False  # it is of the list


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The prices in a region."""

    region: str
    strategy: Strategy
    currency: str = "USD"
    own: Mapping[str, Decimal] = field(default_factory=dict)  # by machine type and accelerator
    own_name: str = FILE_NAME
    listed: ListPrices | None = None  # the bundled list, in USD

    @property
    def why_unknown(self) -> str:
        """The reason why an item has no price."""
        return f"not in the {self.listed.source}" if self.listed else "the list prices are in USD"

    def price(self, name: str) -> UnitPrice | None:
        """Return the user's price of a machine or accelerator, else the list's, None if unknown."""
        if name in self.own:
            return UnitPrice(self.own[name], self.own_name)
        if self.listed and (amount := self.listed.price(name, self.region, self.strategy)):
            return UnitPrice(amount, self.listed.source, True)
        return None


def load_prices(request: JobRequest, folder: Path, chosen: Path | None = None) -> PriceBook:
    """Return the prices for a job: those of the user's file, and the bundled list in USD.

    The file is the chosen one, else the project's, if any. DistlaunchError is raised if it is
    invalid, with line and column.
    """
    file = chosen or folder / FILE_NAME
    own = read_price_file(file) if chosen or file.exists() else PriceFile()
    own_prices = own.regions.get(request.region, {}).get(request.strategy, {})
    name = display_path(file)
    listed = load_list_prices() if own.currency == "USD" else None
    return PriceBook(request.region, request.strategy, own.currency, own_prices, name, listed)


_Currency = Annotated[str, text("a currency such as USD", "[A-Z]{3}")]
_Item = Annotated[
    str,
    text(
        "a machine type or accelerator such as n1-standard-8 or NVIDIA_TESLA_T4",
        r"[a-z][a-z0-9]*(-[a-z0-9]+)+|(NVIDIA|TPU)_[A-Z0-9_]+",
    ),
]
_Price = Annotated[Decimal, text("a price per hour such as 0.42", r"[0-9]{1,9}(\.[0-9]{1,12})?")]
_Prices = dict[Annotated[str, one_of(*get_args(Strategy))], dict[_Item, _Price]]


class _FileOptions(BaseModel):
    currency: _Currency = "USD"


class _FileRegions(RootModel[dict[RegionName, _Prices]]): ...


class PriceFile(NamedTuple):
    """The user's prices per hour by region and strategy, of machine types and accelerators."""

    currency: str = "USD"
    regions: Mapping[str, Mapping[str, Mapping[str, Decimal]]] = {}


def read_price_file(path: Path) -> PriceFile:
    """Read a price file; DistlaunchError is raised with all its problems."""
    document = read_document(path)
    options, problems = validate(document, _FileOptions)
    document.data.pop("currency", None)
    regions, others = validate(document, _FileRegions)
    if options is None or regions is None or document.problems:
        raise job_file_error(path, dict.fromkeys([*problems, *others]))
    return PriceFile(options.currency, regions.root)
