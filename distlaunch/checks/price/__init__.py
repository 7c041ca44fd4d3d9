"""The price of a job: from the user's price file, from Google's price list, or unknown."""

from distlaunch.checks.price.alternatives import MachineOption, compare_machines, format_options
from distlaunch.checks.price.book import PriceBook, load_prices
from distlaunch.checks.price.costs import Cost, PoolCost, estimate_cost
from distlaunch.checks.price.file import FILE_NAME

__all__ = [
    "FILE_NAME",
    "Cost",
    "MachineOption",
    "PoolCost",
    "PriceBook",
    "compare_machines",
    "estimate_cost",
    "format_options",
    "load_prices",
]
