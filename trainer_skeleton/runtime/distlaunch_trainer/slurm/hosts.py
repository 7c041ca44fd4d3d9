"""Slurm's lists of nodes and tasks, as srun sets them in its variables.

https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES has the variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator


def expand_hosts(text: str) -> list[str]:
    """Return the names of a Slurm list of hosts, such as ``gpu[1-3,07],login``."""
    parts = re.split(r",(?![^\[]*\])", text)
    return [host for part in parts for host in _expand(part)]


def _expand(part: str) -> Iterator[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        yield part
        return
    ranges, _, tail = rest.partition("]")
    tails = list(_expand(tail))
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        for number in range(int(first), int(last or first) + 1):
            name = str(number).zfill(len(first))
            yield from (f"{head}{name}{tail}" for tail in tails)


def tasks_per_node(text: str) -> list[int]:
    """Return the number of tasks of each node, of Slurm's text such as ``2(x3),1``."""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(tasks) for tasks, nodes in groups for _ in range(int(nodes or 1))]
