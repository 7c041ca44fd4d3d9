"""Faults that the emulator injects, as `--faults` lists them."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Literal, cast, get_args

from distlaunch.emulator.api_error import ApiError, error_info
from distlaunch.errors import UsageError, did_you_mean

Call = Literal["create", "get", "list", "cancel", "delete", "logs", "storage"]
CALLS: tuple[Call, ...] = get_args(Call)

_MESSAGES = {
    "404": "The requested resource was not found.",
    "429": "Resource has been exhausted (e.g. check quota).",
    "500": "Internal error encountered.",
    "502": "Bad gateway.",
    "503": "The service is currently unavailable.",
    "504": "Deadline expired before operation could complete.",
}
_ALWAYS = ("denied", "disabled", "quota")  # without a number these affect every call
_CALL_FAULTS = (*_MESSAGES, "reset", "lost", "hang", "expired", *_ALWAYS)
_SETTINGS = {"slow-states": 5.0, "seed": 0.0, "expire-jobs": 1.0}
_ALIASES = {f"lost-{call}": f"lost@{call}" for call in CALLS}
_PART = re.compile(
    r"(?P<name>[a-z0-9-]+)(:(?P<amount>[^@#]*))?(@(?P<call>[^#]*))?(#(?P<numbers>.*))?", re.ASCII
)
_NUMBERS = re.compile(r"(?P<first>[1-9]\d{0,8})(-(?P<last>[1-9]\d{0,8}))?|(?P<all>\*)", re.ASCII)
_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class CallFault:
    """A fault of API calls."""

    name: str  # see distlaunch emulator --help
    call: Call | None = None  # the kind of calls that it affects, None for all
    share: float | None = None  # the share of those calls that fails, None for first to last
    first: int = 1
    last: int = 1


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults of an emulator."""

    calls: tuple[CallFault, ...] = ()
    slow_states: float | None = None  # seconds for which a job is QUEUED, and PENDING
    seed: int = 0  # of the random numbers
    expires: bool = False  # whether jobs end EXPIRED in the queue

    @classmethod
    def parse(cls, text: str) -> Faults:
        """Read the value of ``--faults``, or raise UsageError."""
        calls: list[CallFault] = []
        settings: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            match = _PART.fullmatch(_ALIASES.get(part, part))
            if match is None:
                raise _problem(part, "expected NAME[:AMOUNT][@CALL[#N]]")
            name = match["name"]
            if name in _SETTINGS:
                settings[name] = _setting(part, match)
            elif name in _CALL_FAULTS:
                calls.append(_call_fault(part, match))
            else:
                known = (*_CALL_FAULTS, *_SETTINGS, *_ALIASES)
                raise _problem(part, f"no such fault{did_you_mean(name, known)}")
        return cls(
            tuple(calls),
            settings.get("slow-states"),
            int(settings.get("seed", 0)),
            bool(settings.get("expire-jobs")),
        )


class FaultCounter:
    """Counts calls and selects those that fail; may be used from any thread.

    Each fault has random numbers of its own, so that what happens to one kind of calls does not
    depend on how many there are of another.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults.calls
        self._lock = threading.Lock()
        self._counts: Counter[CallFault] = Counter()
        self._random = {
            fault: random.Random(f"{faults.seed} {number}")  # noqa: S311 - not a secret
            for number, fault in enumerate(faults.calls)
        }

    def next(self, call: Call) -> str | None:
        """Count a call and return the name of the first fault that affects it, if any."""
        with self._lock:
            names = [
                fault.name
                for fault in self._faults
                if fault.call in (None, call) and self._affects(fault)
            ]
        return names[0] if names else None

    def _affects(self, fault: CallFault) -> bool:
        self._counts[fault] += 1
        if fault.share is not None:
            return self._random[fault].random() < fault.share
        return fault.first <= self._counts[fault] <= fault.last


def fault_error(name: str, call: Call, project: str) -> ApiError:
    """Return the answer to a call that fails, for faults that are answers."""
    service = {"logs": "logging", "storage": "storage"}.get(call, "aiplatform")
    api = f"{service}.googleapis.com"
    if name == "expired":
        info = error_info("ACCESS_TOKEN_EXPIRED", "googleapis.com", service=api)
        text = "Request had invalid authentication credentials. Expected OAuth 2 access token."
        return ApiError(401, text, details=[info])
    if name == "denied":
        objects = {"logs": "logging.logEntries.list", "storage": "storage.objects.get"}
        permission = objects.get(call, f"aiplatform.customJobs.{call}")
        info = error_info("IAM_PERMISSION_DENIED", api, permission=permission)
        text = f"Permission '{permission}' denied on resource (or it may not exist)."
        return ApiError(403, text, details=[info])
    if name == "disabled":
        consumer = f"projects/{project}"
        info = error_info("SERVICE_DISABLED", "googleapis.com", service=api, consumer=consumer)
        text = f"{api} has not been used in project {project} before or it is disabled."
        return ApiError(403, text, details=[info])
    if name == "quota":
        metric = "aiplatform.googleapis.com/custom_model_training_cpus"
        return ApiError(429, f"The following quota metrics exceed quota limits: {metric}")
    headers = {"Retry-After": "1"} if name == "503" else None
    return ApiError(int(name), _MESSAGES[name], headers=headers)


def _setting(part: str, match: re.Match[str]) -> float:
    name, amount = match["name"], match["amount"]
    if match["call"] is not None or match["numbers"] is not None:
        raise _problem(part, f"{name} is not about calls")
    return _SETTINGS[name] if amount is None else _amount(part, amount, 1e9)


def _call_fault(part: str, match: re.Match[str]) -> CallFault:
    name, numbers, call = match["name"], match["numbers"], match["call"]
    if call is not None and numbers is None and _NUMBERS.fullmatch(call):
        numbers, call = call, None  # 503@3 is short for 503#3
    call = "create" if name == "quota" and call is None else call
    if call is not None and call not in CALLS:
        expected = ", ".join(CALLS)
        raise _problem(part, f"unknown call {call!r}; expected {expected}")
    if name == "quota" and call != "create":
        raise _problem(part, "only 'create' can exceed a quota")
    kind = cast("Call | None", call)
    if match["amount"] is not None:
        if numbers is not None:
            raise _problem(part, "give a share or the number of a call, not both")
        return CallFault(name, kind, _amount(part, match["amount"], 1.0))
    if numbers is None:
        return CallFault(name, kind, last=_ENDLESS if name in _ALWAYS else 1)
    counted = _NUMBERS.fullmatch(numbers)
    if counted is None:
        raise _problem(part, "expected #N, #N-M or #* behind the call")
    if counted["all"]:
        return CallFault(name, kind, last=_ENDLESS)
    first = int(counted["first"])
    return CallFault(name, kind, first=first, last=int(counted["last"] or first))


def _amount(part: str, text: str, highest: float) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= highest:
        limit = f"from 0 to {highest:g}" if highest <= 1 else "from 0"
        raise _problem(part, f"expected a number {limit} behind ':', got {text!r}")
    return amount


def _problem(part: str, reason: str) -> UsageError:
    return UsageError(f"--faults: {part!r}: {reason} (see 'distlaunch emulator --help')")
