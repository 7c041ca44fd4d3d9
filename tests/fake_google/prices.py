"""A price list in the shape of Google's Cloud Billing Catalog, with round prices."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

VERTEX_AI = "C7E2-9256-1C43"
_TRAINING = "Vertex AI: Training/Pipelines on"


def sku(description: str, price: str, unit: str = "h", **others: Any) -> dict[str, Any]:
    """Return a SKU of one tier, in the shape of `google.cloud.billing.v1.Sku`'s JSON."""
    rates = others.get("tiers") or [tier(price)]
    return {
        "description": description,
        "serviceRegions": others.get("regions", ["us-central1"]),
        "pricingInfo": [
            {"pricingExpression": {"usageUnit": unit, "displayQuantity": 1, "tieredRates": rates}}
        ],
    }


def tier(price: str, currency: str = "USD", start: float = 0) -> dict[str, Any]:
    """Return a tier's rate."""
    units, rest = divmod(Decimal(price), 1)
    money = {"currencyCode": currency, "units": str(units), "nanos": int(rest.scaleb(9))}
    return {"startUsageAmount": start, "unitPrice": money}


SKUS = {
    VERTEX_AI: [
        sku(f"{_TRAINING} N1 Predefined Instance Core running in Iowa", "0.04"),
        sku(f"{_TRAINING} N1 Predefined Instance Ram running in Iowa", "0.005", "GiBy.h"),
        sku(f"{_TRAINING} NVIDIA Tesla T4 in Iowa", "0.4"),
        sku(f"{_TRAINING} NVIDIA Tesla V100 in Iowa", "2.5"),
        sku(f"{_TRAINING} SSD backed PD Capacity", "0.17", "GiBy.mo"),
    ]
}
