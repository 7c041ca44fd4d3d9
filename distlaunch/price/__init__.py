"""The price of a job: from the user's price file, from the bundled list, or unknown."""

from distlaunch.price.book import load_prices
from distlaunch.price.costs import Cost, cost_so_far, describe_amount, estimate_cost
from distlaunch.price.limit import PricedChoice, fit_timeout, price_choices
from distlaunch.price.machine_options import MachineOption, compare_machines, format_options

__all__ = [
    "Cost",
    "MachineOption",
    "PricedChoice",
    "compare_machines",
    "cost_so_far",
    "describe_amount",
    "estimate_cost",
    "fit_timeout",
    "format_options",
    "load_prices",
    "price_choices",
]
