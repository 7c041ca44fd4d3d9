"""Faults that the emulator makes on purpose, as `--faults` asks for them."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import cast

from distlaunch.emulator.lacks import WAYS, Lacks
from distlaunch.emulator.service.apis import CALLS, Call
from distlaunch.errors import UsageError, did_you_mean

_CODES = ("404", "429", "500", "502", "503", "504")
_ALWAYS = ("denied", "disabled", "quota")
_CALL_FAULTS = (*_CODES, "reset", "lost", "hang", "expired", *_ALWAYS)
_SETTINGS = {
    "slow-states": 5.0,
    "seed": 0.0,
    "expire-jobs": 1.0,
}
_ALIASES = {f"lost-{call}": f"lost@{call}" for call in CALLS}
_PART = re.compile(
    r"(?P<name>[a-z0-9-]+)(:(?P<amount>[^@#]*))?(@(?P<call>[^#]*))?(#(?P<which>.*))?", re.ASCII
)
_WHICH = re.compile(r"(?P<first>[1-9]\d{0,8})(-(?P<last>[1-9]\d{0,8}))?|(?P<all>\*)", re.ASCII)
_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of calls.

    Parameters
    ----------
    name
        As ``distlaunch emulator --help`` explains them.
    call
        The kind of calls that it is for, None for all.
    share
        Of those calls, None where they are counted.
    first, last
        Which of those calls, from 1.
    """

    name: str
    call: Call | None = None
    share: float | None = None
    first: int = 1
    last: int = 1


@dataclass(frozen=True, slots=True)
class Faults:
    """What is to go wrong.

    Parameters
    ----------
    faults
        Of calls, in the order in which they were asked for.
    slow_states
        Seconds that a job stays in each state before RUNNING, None for the usual.
    seed
        What is left to chance is drawn with.
    expires
        Whether jobs end EXPIRED in the queue.
    lacks
        What the project lacks.
    """

    faults: tuple[Fault, ...] = ()
    slow_states: float | None = None
    seed: int = 0
    expires: bool = False
    lacks: Lacks = field(default_factory=Lacks)

    @classmethod
    def parse(cls, text: str) -> Faults:
        """Read what stands behind ``--faults``.

        Raises
        ------
        UsageError
            If a part of it is none.
        """
        faults: list[Fault] = []
        settings: dict[str, float] = {}
        lacks = Lacks()
        for part in filter(None, (each.strip() for each in text.split(","))):
            found = _PART.fullmatch(_ALIASES.get(part, part))
            if found is None:
                raise _problem(part, "expected NAME[:AMOUNT][@CALL[#N]]")
            name = found["name"]
            if name in _SETTINGS:
                settings[name] = _setting(part, found)
            elif name in _CALL_FAULTS:
                faults.append(_fault(part, found))
            elif name in WAYS:
                lacks = _more(lacks, part, found)
            else:
                known = (*_CALL_FAULTS, *_SETTINGS, *WAYS, *_ALIASES)
                raise _problem(part, f"no such fault{did_you_mean(name, known)}")
        return cls(
            tuple(faults),
            settings.get("slow-states"),
            int(settings.get("seed", 0)),
            bool(settings.get("expire-jobs")),
            lacks,
        )


def _setting(part: str, found: re.Match[str]) -> float:
    _check_is_not_about_calls(part, found)
    if found["amount"] is None:
        return _SETTINGS[found["name"]]
    return _amount(part, found["amount"], 1e9)


def _more(lacks: Lacks, part: str, found: re.Match[str]) -> Lacks:
    _check_is_not_about_calls(part, found)
    try:
        return lacks.also(found["name"], found["amount"] or "")
    except ValueError as problem:
        raise _problem(part, str(problem)) from None


def _check_is_not_about_calls(part: str, found: re.Match[str]) -> None:
    if found["call"] is not None or found["which"] is not None:
        raise _problem(part, f"{found['name']} is not about calls")


def _fault(part: str, found: re.Match[str]) -> Fault:
    name, which, call = found["name"], found["which"], found["call"]
    if call is not None and which is None and _WHICH.fullmatch(call):
        which, call = call, None  # 503@3 is short for 503#3
    call = "create" if name == "quota" and call is None else call
    if call is not None and call not in CALLS:
        hint = did_you_mean(call, CALLS)
        raise _problem(part, f"no call is named {call!r}; expected {', '.join(CALLS)}{hint}")
    if name == "quota" and call != "create":
        raise _problem(part, "a quota is exceeded by 'create' only")
    kind = cast("Call | None", call)
    if found["amount"] is not None:
        if which is not None:
            raise _problem(part, "give a share or the number of a call, not both")
        return Fault(name, kind, _amount(part, found["amount"], 1.0))
    if which is None:
        return Fault(name, kind, last=_ENDLESS if name in _ALWAYS else 1)
    numbers = _WHICH.fullmatch(which)
    if numbers is None:
        raise _problem(part, "expected #N, #N-M or #* behind the call")
    if numbers["all"]:
        return Fault(name, kind, last=_ENDLESS)
    first = int(numbers["first"])
    return Fault(name, kind, first=first, last=int(numbers["last"] or first))


def _amount(part: str, text: str, most: float) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= most:
        limit = f"from 0 to {most:g}" if most <= 1 else "from 0"
        raise _problem(part, f"expected a number {limit} behind ':', got {text!r}")
    return amount


def _problem(part: str, what: str) -> UsageError:
    return UsageError(f"--faults: {part!r}: {what} (see 'distlaunch emulator --help')")


@dataclass(slots=True)
class FaultyCalls:
    """Counts calls and says which of them go wrong; may be asked from any thread.

    The numbers are drawn by each fault for itself, so that what happens to one kind of calls does
    not depend on how many there are of another.
    """

    faults: Faults
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counts: Counter[int] = field(default_factory=Counter)
    _draws: list[random.Random] = field(default_factory=list)

    def __post_init__(self) -> None:
        seed = self.faults.seed
        self._draws = [
            random.Random(f"{seed} {number}")  # noqa: S311 - no secret
            for number, _ in enumerate(self.faults.faults)
        ]

    def next(self, call: Call) -> Fault | None:
        """Count a call and return the first fault that strikes it, if any does."""
        with self._lock:
            striking = [
                fault
                for number, fault in enumerate(self.faults.faults)
                if fault.call in (None, call) and self._strikes(number, fault)
            ]
        return striking[0] if striking else None

    def _strikes(self, number: int, fault: Fault) -> bool:
        self._counts[number] += 1
        if fault.share is not None:
            return self._draws[number].random() < fault.share
        return fault.first <= self._counts[number] <= fault.last
