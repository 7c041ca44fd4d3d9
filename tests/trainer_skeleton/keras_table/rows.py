"""How the rows of the table are trained: by their module, alone or together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cases
from data_cases import train_on
from user_cases import USER_CASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases import Arrays

DATA = "tf.data.Dataset"

TRAIN: dict[str, Callable[[str], Arrays]] = {
    "keras.losses": cases.train_loss,
    "keras.optimizers": cases.train_optimizer,
    "keras.optimizers.schedules": cases.train_schedule,
    "keras.callbacks": cases.train_callback,
    DATA: lambda row: train_on(row.removeprefix(f"{DATA}.")),
}

TRAIN_TOGETHER: dict[str, Callable[[list[str]], dict[str, Arrays]]] = {
    "keras.metrics": cases.train_metrics,
    "keras.layers": cases.train_layers,
}


def train(rows: list[str]) -> dict[str, Arrays]:
    """Train rows of one group in one model; return the arrays that each ends with."""
    row, module = rows[0], module_of(rows[0])
    if row in USER_CASES:
        return {row: USER_CASES[row]()}
    if module in TRAIN_TOGETHER:
        return TRAIN_TOGETHER[module](rows)
    return {row: TRAIN[module](row)}


def group_of(row: str) -> str:
    """Return what rows have in common that are trained in one model."""
    module = module_of(row)
    if row in USER_CASES or module not in TRAIN_TOGETHER:
        return row
    if module == "keras.layers":
        return f"{module} {hasattr(cases.symbol_of(row), 'transform_images')} {'stateful' in row}"
    return f"{module} {isinstance(cases.symbol_of(row), type)} {cases.metric_kind(row)}"


def module_of(row: str) -> str:
    """Return the module, or the class, of the symbol of a row."""
    return DATA if row.startswith(DATA) else row.partition("(")[0].rpartition(".")[0]
