"""Faults that the emulator injects, as `--faults` lists them."""

from __future__ import annotations

import math
import random
import re
import threading
from dataclasses import dataclass
from typing import Literal, get_args

from distlaunch.errors import UsageError, did_you_mean

Call = Literal["create", "get", "list", "cancel", "delete", "logs", "storage"]

_ALWAYS = ("denied", "disabled", "quota")  # without a number these affect every call
_FAULTS = (
    *("404", "429", "500", "502", "503", "504", "reset", "lost", "hang", "expired"),
    *_ALWAYS,
)
_USUAL_STATES = 0.1
_SETTINGS = {"slow-states": 5.0, "seed": 0.0, "expire-jobs": 1.0}
_REGIONAL = ("stockout", "no-start")
_REGION = re.compile(r"[a-z]+(-[a-z]+)+[0-9]+", re.ASCII)
_SETTING = re.compile(r"[a-z-]+(:(?P<value>\d{1,9}(\.\d+)?))?", re.ASCII)
_FAULT = re.compile(
    r"[a-z0-9]+(:(?P<share>0(\.\d+)?|1(\.0+)?))?"
    rf"(@(?P<call>{'|'.join(get_args(Call))}))?"
    r"(#((?P<first>[1-9]\d{0,8})(-(?P<last>[1-9]\d{0,8}))?|(?P<all>\*)))?",
    re.ASCII,
)


@dataclass
class CallFault:
    """A fault of API calls, and how many calls there were that it can affect."""

    name: str  # see distlaunch emulator --help
    call: str | None  # the kind of calls that it affects, None for all
    share: float  # the share of those calls that fails, from the first to the last
    first: int
    last: float
    random: random.Random
    count: int = 0

    def affects_next(self) -> bool:
        """Count a call, and return whether it fails."""
        self.count += 1
        return self.first <= self.count <= self.last and self.random.random() < self.share


class Faults:
    """All faults of an emulator, from the value of ``--faults``.

    Each has random numbers of its own, so that what happens to one kind of calls does not depend
    on how many there are of another. UsageError is raised for what is not a fault.
    """

    def __init__(self, text: str = "") -> None:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        places = [_read_region(part) for part in parts if _name(part) in _REGIONAL]
        # Regions whose jobs end FAILED for want of machines, and where they stay PENDING; '' is all
        self.stockouts = frozenset(region for name, region in places if name == "stockout")
        self.stalls = frozenset(region for name, region in places if name == "no-start")
        parts = [part for part in parts if _name(part) not in _REGIONAL]
        settings = dict(_read_setting(part) for part in parts if _name(part) in _SETTINGS)
        # Seconds for which a job is QUEUED, and then PENDING.
        self.slow_states = settings.get("slow-states", _USUAL_STATES)
        self.expires = bool(settings.get("expire-jobs"))  # whether jobs end EXPIRED in the queue
        seed = int(settings.get("seed", 0))
        self._lock = threading.Lock()
        self._faults = [
            _read_fault(part, f"{seed} {number}")
            for number, part in enumerate(parts)
            if _name(part) not in _SETTINGS
        ]

    def next(self, call: Call) -> str | None:
        """Count a call and return the name of the first fault that affects it, if any."""
        with self._lock:
            names = [
                fault.name
                for fault in self._faults
                if fault.call in (None, call) and fault.affects_next()
            ]
        return names[0] if names else None


def _name(part: str) -> str:
    return re.split("[:@#]", part, maxsplit=1)[0]


def _read_setting(part: str) -> tuple[str, float]:
    match = _SETTING.fullmatch(part)
    if match is None:
        raise _problem(part, "expected NAME or NAME:NUMBER")
    name = _name(part)
    return name, float(match["value"] or _SETTINGS[name])


def _read_region(part: str) -> tuple[str, str]:
    name, _, region = part.partition(":")
    if region and not _REGION.fullmatch(region):
        raise _problem(part, "expected NAME or NAME:REGION")
    return name, region


def _read_fault(part: str, seed: str) -> CallFault:
    name, match = _name(part), _FAULT.fullmatch(part)
    if name not in _FAULTS:
        hint = did_you_mean(name, (*_FAULTS, *_SETTINGS, *_REGIONAL))
        raise _problem(part, f"no such fault{hint}")
    if match is None:
        raise _problem(part, "expected NAME[:SHARE][@CALL[#N]]")
    is_endless = match["all"] or match["share"] or name in _ALWAYS
    first, last = int(match["first"] or 1), math.inf if is_endless else 1
    if match["first"]:
        last = int(match["last"] or first)
    return CallFault(
        name,
        match["call"] or ("create" if name == "quota" else None),
        float(match["share"] or 1),
        first,
        last,
        random.Random(seed),  # noqa: S311 - not a secret
    )


def _problem(part: str, reason: str) -> UsageError:
    return UsageError(f"--faults: {part!r}: {reason} (see 'distlaunch emulator --help')")
