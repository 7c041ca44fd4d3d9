"""What a project can be told to lack, as `--faults` asks for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from distlaunch.emulator.service.apis import APIS
from distlaunch.emulator.service.quotas import METRICS
from distlaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

THINGS = ("project", "billing", "bucket", "repository", "account", "agent")
FORMATS = (
    *("DOCKER", "MAVEN", "NPM", "APT", "YUM", "GOOGET"),
    *("PYTHON", "KFP", "GO", "GENERIC", "RUBY", "CONDA"),
)

_MULTI_REGIONS = ("ASIA", "EU", "US")
_DUAL_REGIONS = ("ASIA1", "EUR4", "EUR5", "EUR7", "EUR8", "NAM4")
_REGION = re.compile(r"[a-z]+(-[a-z]+)+\d+", re.ASCII)
_PERMISSION = re.compile(r"[a-z]+\.[A-Za-z]+\.[A-Za-z]+", re.ASCII)
_LIMIT = re.compile(r"(?P<metric>\w+)=(?P<limit>-1|\d{1,9})", re.ASCII)
_DOMAIN = ".googleapis.com"


@dataclass(frozen=True, slots=True)
class Lacks:
    """What a project lacks; by default nothing.

    Parameters
    ----------
    names
        Of `THINGS`, APIs and permissions.
    bucket_location
        Where all buckets are instead of in the emulator's region, as Cloud Storage writes it.
    repository_format
        What all repositories hold.
    limits
        Of quota metrics, by what comes after ``custom_model_training_``; -1 for none.
    """

    names: frozenset[str] = frozenset()
    bucket_location: str = ""
    repository_format: str = "DOCKER"
    limits: Mapping[str, int] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def also(self, name: str, amount: str) -> Lacks:
        """Return the same with one part more of ``--faults``.

        Parameters
        ----------
        name, amount
            What stands before and behind its colon; the name is one of `WAYS`.

        Raises
        ------
        ValueError
            If nothing can lack that.
        """
        return WAYS[name](self, amount)

    def limit(self, metric: str) -> int | None:
        """Return the limit of a metric, None where none was asked for."""
        return self.limits.get(metric)


def location_type(location: str) -> str:
    """Return what kind of place a bucket is in, in Cloud Storage's words."""
    if location in _MULTI_REGIONS:
        return "multi-region"
    return "dual-region" if location in _DUAL_REGIONS else "region"


def _without(lacks: Lacks, name: str) -> Lacks:
    is_permission = _PERMISSION.fullmatch(name) and not name.endswith(_DOMAIN)
    if name not in (*THINGS, *APIS) and not is_permission:
        hint = did_you_mean(name, (*THINGS, *APIS))
        things = ", ".join(THINGS)
        raise ValueError(f"expected an API, a permission or one of {things}{hint}")
    return replace(lacks, names=lacks.names | {name})


def _bucket_in(lacks: Lacks, place: str) -> Lacks:
    if place.upper() not in _MULTI_REGIONS + _DUAL_REGIONS and not _REGION.fullmatch(place.lower()):
        raise ValueError(f"expected a place as EU, NAM4 or europe-west1, got {place!r}")
    return replace(lacks, bucket_location=place.upper())


def _repository_format(lacks: Lacks, kind: str) -> Lacks:
    if kind not in FORMATS:
        known = ", ".join(FORMATS)
        raise ValueError(f"expected one of {known}, got {kind!r}{did_you_mean(kind, FORMATS)}")
    return replace(lacks, repository_format=kind)


def _limit(lacks: Lacks, said: str) -> Lacks:
    found = _LIMIT.fullmatch(said)
    if found is None:
        raise ValueError(f"expected METRIC=NUMBER behind ':', got {said!r}")
    if found["metric"] not in METRICS:
        hint = did_you_mean(found["metric"], METRICS)
        raise ValueError(f"no metric is named {found['metric']!r}{hint}")
    limits = {**lacks.limits, found["metric"]: int(found["limit"])}
    return replace(lacks, limits=limits)


WAYS: Mapping[str, Callable[[Lacks, str], Lacks]] = {
    "without": _without,
    "bucket-in": _bucket_in,
    "repository-format": _repository_format,
    "limit": _limit,
}
"""What a part of ``--faults`` that is about the project says of it, by its name."""
