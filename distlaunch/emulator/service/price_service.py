"""The Cloud Billing Catalog's ``skus`` of Vertex AI and Compute Engine.

https://cloud.google.com/billing/docs/reference/rest/v1/services.skus
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlaunch.emulator.service.answers import Refused
from distlaunch.emulator.service.pages import page
from distlaunch.emulator.service.price_list import skus

if TYPE_CHECKING:
    from distlaunch.emulator.service.answers import Request

_ON_A_PAGE = 100


class PriceService:
    """Tells prices, which are made up."""

    def skus(self, request: Request, service: str) -> dict[str, Any]:
        """Tell what a service sells, page by page.

        Raises
        ------
        Refused
            If there is none of this id, or the page or the currency cannot be.
        """
        if request.options.get("currencyCode", "USD") != "USD":
            raise Refused(400, "The emulator has prices in USD alone.")
        found = skus(service)
        if found is None:
            raise Refused(404, f"Service services/{service} not found.")
        return page("skus", found, request.options, usual=_ON_A_PAGE, most=_ON_A_PAGE)
