"""What a job costs: by the user's own prices, by Google's price list, or not known, never guessed.

`file` reads the former, `catalog` the latter; `skus` knows what a job is billed for. `quotes`
has what both say, `costs` what that makes for a job, `offers` what it would on other machines.
"""

from distlaunch.checks.price.alternatives import Offer, compare, comparison
from distlaunch.checks.price.costs import Cost, PoolCost, cost
from distlaunch.checks.price.file import FILE_NAME
from distlaunch.checks.price.quotes import Prices, prices

__all__ = [
    "FILE_NAME",
    "Cost",
    "Offer",
    "PoolCost",
    "Prices",
    "compare",
    "comparison",
    "cost",
    "prices",
]
