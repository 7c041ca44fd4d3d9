"""The user's own prices: ``distlaunch.prices.yaml``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

from distlaunch.errors import did_you_mean
from distlaunch.job.model import Strategy
from distlaunch.job.validation import describe_value
from distlaunch.job.yaml_document import (
    Document,
    YamlProblem,
    display_path,
    job_file_error,
    read_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CURRENCY = "USD"
FILE_NAME = "distlaunch.prices.yaml"  # in the project's folder

_STRATEGIES: tuple[str, ...] = get_args(Strategy)
_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)
_REGION = re.compile(r"[a-z]+(-[a-z]+)+[0-9]+", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+|(NVIDIA|TPU)_[A-Z0-9_]+", re.ASCII)
_PRICE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,12})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PriceFile:
    """What somebody pays.

    Parameters
    ----------
    name
        The file, as it is shown.
    currency
        As ISO 4217 has it.
    hourly
        Region → strategy → machine type (without its accelerators) or accelerator (one) → what it
        costs an hour.
    """

    name: str = ""
    currency: str = CURRENCY
    hourly: Mapping[str, Mapping[str, Mapping[str, Decimal]]] = field(default_factory=dict)

    def of(self, region: str, strategy: str) -> Mapping[str, Decimal]:
        """Return what things cost in a region by a strategy."""
        return self.hourly.get(region, {}).get(strategy, {})


def read(path: Path) -> PriceFile:
    """Read a price file.

    Raises
    ------
    JobFileError
        With every problem of it, each with line and column.
    DistlaunchError
        If it cannot be read.
    """
    try:
        document = Document(read_text(path))
    except YamlProblem as problem:
        raise job_file_error(path, [problem]) from None
    reader = _Reader(document)
    found = reader.read(display_path(path))
    if reader.problems:
        raise job_file_error(path, reader.problems)
    return found


class _Reader:
    """Goes through a document and collects what is wrong with it."""

    def __init__(self, document: Document) -> None:
        self.problems = list(document.problems)
        self._document = document

    def read(self, name: str) -> PriceFile:
        data = dict(self._document.data)
        currency = data.pop("currency", CURRENCY)
        if not (isinstance(currency, str) and _CURRENCY.fullmatch(currency)):
            self._refuse(("currency",), "a currency, as USD", currency)
        return PriceFile(name, str(currency), {key: self._region(key, data[key]) for key in data})

    def _region(self, region: str, said: Any) -> dict[str, dict[str, Decimal]]:
        if not _REGION.fullmatch(region):
            self._refuse((region,), "currency, or a region, as us-central1", region, of_key=True)
            return {}
        expected = f"a section with {', '.join(_STRATEGIES)}"
        by_strategy = self._section((region,), expected, said)
        return {key: self._strategy(region, key, value) for key, value in by_strategy.items()}

    def _strategy(self, region: str, strategy: str, said: Any) -> dict[str, Decimal]:
        path = (region, strategy)
        if strategy not in _STRATEGIES:
            expected = f"{', '.join(_STRATEGIES[:-1])} or {_STRATEGIES[-1]}"
            hint = did_you_mean(strategy, _STRATEGIES)
            self._refuse(path, expected, strategy, of_key=True, hint=hint)
            return {}
        expected = "machine types and accelerators with what they cost an hour"
        return {
            name: self._price((*path, name), value)
            for name, value in self._section(path, expected, said).items()
        }

    def _price(self, path: tuple[str, ...], said: Any) -> Decimal:
        if not _NAME.fullmatch(path[-1]):
            expected = "a machine type or an accelerator, as n1-standard-8 or NVIDIA_TESLA_T4"
            self._refuse(path, expected, path[-1], of_key=True)
        elif not (isinstance(said, str) and _PRICE.fullmatch(said)):
            self._refuse(path, "what it costs an hour, as 0.42", said)
        else:
            return Decimal(said)
        return Decimal(0)

    def _section(self, path: tuple[str, ...], expected: str, said: Any) -> dict[str, Any]:
        if isinstance(said, dict):
            return said
        self._refuse(path, expected, said)
        return {}

    def _refuse(
        self,
        path: tuple[str, ...],
        expected: str,
        got: Any,
        *,
        of_key: bool = False,
        hint: str = "",
    ) -> None:
        place = self._document.location(path, of_key=of_key)
        what = f"{'.'.join(path)}: expected {expected}, got {describe_value(got)}{hint}"
        self.problems.append(YamlProblem(place, what))
