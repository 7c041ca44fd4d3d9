"""The price of a job: from the user's price file, from the bundled list, or unknown."""

from distlaunch.price.book import load_prices
from distlaunch.price.costs import (
    Cost,
    MachineOption,
    compare_machines,
    cost_so_far,
    estimate_cost,
    format_options,
)

__all__ = [
    "Cost",
    "MachineOption",
    "compare_machines",
    "cost_so_far",
    "estimate_cost",
    "format_options",
    "load_prices",
]
