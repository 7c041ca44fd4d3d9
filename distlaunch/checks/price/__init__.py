"""The price of a job: from the user's price file, from Google's price list, or unknown."""

from distlaunch.checks.price.alternatives import MachineOption, compare_machines, format_options
from distlaunch.checks.price.book import FILE_NAME, PriceBook, load_prices
from distlaunch.checks.price.costs import Cost, estimate_cost

__all__ = [
    "FILE_NAME",
    "Cost",
    "MachineOption",
    "PriceBook",
    "compare_machines",
    "estimate_cost",
    "format_options",
    "load_prices",
]
