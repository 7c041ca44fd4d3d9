"""Slurm's lists of nodes and tasks, as srun sets them in its variables.

https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES has the variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from distlaunch_trainer.errors import ClusterError

_RANGES = r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*"
_GROUP = re.compile(rf"(?P<head>[^\[\]]*)\[(?P<ranges>{_RANGES})\](?P<tail>.*)")
_COUNT = re.compile(r"(?P<tasks>[0-9]+)(\(x(?P<nodes>[0-9]+)\))?")


def expand_hosts(text: str) -> list[str]:
    """Return the names of a Slurm list of hosts, such as ``gpu[1-3,07],login``.

    Raises
    ------
    ClusterError
        If it is not one.
    """
    hosts: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        hosts += _expand(part)
    if not all(hosts) or any(set("[] ") & set(host) for host in hosts):
        raise ClusterError(f"{text!r} is not a list of hosts of Slurm")
    return hosts


def _expand(part: str) -> Iterator[str]:
    match = _GROUP.fullmatch(part)
    if match is None:
        yield part
        return
    tails = list(_expand(match["tail"]))
    for each in match["ranges"].split(","):
        first, _, last = each.partition("-")
        for number in range(int(first), int(last or first) + 1):
            name = str(number).zfill(len(first))
            yield from (f"{match['head']}{name}{tail}" for tail in tails)


def tasks_per_node(text: str) -> list[int]:
    """Return the number of tasks of each node, of Slurm's text such as ``2(x3),1``.

    Raises
    ------
    ClusterError
        If it is not one.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        if match is None:
            raise ClusterError(f"{text!r} is not Slurm's number of tasks per node")
        counts += [int(match["tasks"])] * int(match["nodes"] or 1)
    return counts


def hosts_of_tasks(nodes: Sequence[str], counts: Sequence[int], distribution: str) -> list[str]:
    """Return the node of each task of a step, in the order of their numbers.

    Parameters
    ----------
    counts
        The number of tasks of each node.
    distribution
        Slurm's, among nodes: ``block`` fills a node before the next, ``cyclic`` takes turns.

    Raises
    ------
    ClusterError
        For another distribution.
    """
    kind = re.split("[:,]", distribution)[0] or "block"
    if kind == "block":
        return [node for node, count in zip(nodes, counts, strict=True) for _ in range(count)]
    if kind == "cyclic":
        rounds = range(max(counts, default=0))
        pairs = list(zip(nodes, counts, strict=True))
        return [node for number in rounds for node, count in pairs if number < count]
    raise ClusterError(f"srun --distribution={distribution}: expected block or cyclic")
