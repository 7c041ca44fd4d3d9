"""Names of variables in a checkpoint: their paths, without the counters of a process.

Keras numbers layers without a name by a counter of the whole process: a model's first Dense layer
is ``dense_7`` if another model was created before. Here the numbers of each kind of layer start at
0, so that a model has the same names wherever it is created.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

_NUMBERED = re.compile(r"(.+?)_(\d+)")


def stable_names(paths: Iterable[str]) -> list[str]:
    """Return paths with the numbers of each kind of layer starting at 0, which is left out.

    ``["dense_7/kernel", "dense_8/kernel"]`` becomes ``["dense/kernel", "dense_1/kernel"]``.
    """
    split = [[_kind_and_number(part) for part in path.split("/")] for path in paths]
    least: dict[str, int] = {}
    for kind, number in (part for parts in split for part in parts):
        least[kind] = min(number, least.get(kind, number))
    return ["/".join(_joined(kind, n - least[kind]) for kind, n in parts) for parts in split]


def optimizer_names(paths: Iterable[str], model_names: Mapping[str, str]) -> list[str]:
    """Return the names of an optimizer's variables, without the scopes they were created in.

    ``adam_1/dense_7_kernel_momentum`` becomes ``dense/kernel/momentum``: Keras writes the path of
    the model's variable, a key of ``model_names``, with underscores.
    """
    by_prefix = {f"{path.replace('/', '_')}_": name for path, name in model_names.items()}
    names = []
    for path in paths:
        name = path.rpartition("/")[2]
        # The longest: a path may begin with another one.
        prefix = max((p for p in by_prefix if name.startswith(p)), key=len, default="")
        names.append(f"{by_prefix[prefix]}/{name.removeprefix(prefix)}" if prefix else name)
    return names


def unique_names(names: Iterable[str]) -> list[str]:
    """Return names of which later duplicates have a suffix, ``#2`` and so on."""
    count: Counter[str] = Counter()
    result = []
    for name in names:
        count[name] += 1
        result.append(f"{name}#{count[name]}" if count[name] > 1 else name)
    return result


def _kind_and_number(part: str) -> tuple[str, int]:
    numbered = _NUMBERED.fullmatch(part)
    return (numbered[1], int(numbered[2])) if numbered else (part, 0)


def _joined(kind: str, number: int) -> str:
    return f"{kind}_{number}" if number else kind
