"""The prices of a region: the user's, from ``distlaunch.prices.yaml``, or list prices."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, NamedTuple, get_args

from pydantic import BaseModel, RootModel

from distlaunch.job.model import Strategy
from distlaunch.job.schema import RegionName, one_of, text
from distlaunch.job.validation import validate
from distlaunch.job.yaml_document import display_path, job_file_error, read_document
from distlaunch.price.list_prices import ListPrices, load_list_prices

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlaunch.job.vertex.view import JobRequest

FILE_NAME = "distlaunch.prices.yaml"  # in the project's folder


class UnitPrice(NamedTuple):
    """The price of one item for an hour, and its source."""

    amount: Decimal
    source: str
    is_estimate: bool = False
    has_accelerators: bool = False  # it is of a machine with its accelerators


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
            has_accelerators = self.listed.has_accelerators(name)
            return UnitPrice(amount, self.listed.source, True, has_accelerators)
        return None


def price_file(folder: Path, chosen: Path | None = None) -> Path | None:
    """Return the user's price file: the chosen one, else the project's, if any."""
    own = folder / FILE_NAME
    return chosen or (own if own.exists() else None)


def load_prices(request: JobRequest, file: Path | None) -> PriceBook:
    """Return the prices for a job: those of a user's file, and the bundled list in USD.

    DistlaunchError is raised if that file is invalid, with line and column.
    """
    own = read_price_file(file) if file else PriceFile()
    own_prices = own.regions.get(request.region, {}).get(request.strategy, {})
    name = display_path(file) if file else FILE_NAME
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
