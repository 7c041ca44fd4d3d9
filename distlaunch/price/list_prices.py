"""The bundled list prices, for an estimate.

They are Compute Engine's. Vertex AI charges 15 % more: on demand by prices of its own, with Spot
by a management fee of 15 % of the price on demand. Known pairs agree: n1-standard-4 in us-central1
is 0.189999 USD on demand and 0.21849885 with Vertex AI (https://cloud.google.com/vertex-ai/pricing,
October 2026).
"""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlaunch.job.model import Strategy

_FILE = Path(__file__).with_name("list_prices.json")  # written by tools/make_list_prices.py
_FEE = Decimal("0.15")  # of the price on demand
_WITH_GPUS = ("a2-", "a3-", "g2-", "g4-")  # a machine's price includes its GPUs


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

    def has_accelerators(self, name: str) -> bool:
        """Whether the price of a machine includes its accelerators."""
        return name.startswith(_WITH_GPUS)


@cache
def load_list_prices() -> ListPrices:
    """Return the bundled list prices."""
    content = json.loads(_FILE.read_bytes(), parse_float=Decimal)
    return ListPrices(date.fromisoformat(content["date"]), content["prices"])
