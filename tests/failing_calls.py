"""An emulator some of whose calls fail, such as by "503:0.3@list,lost@create#1".

A fault is NAME[:SHARE][@CALL][#N[-M]], or seed:N for the random numbers of the shares. NAME is a
key of ANSWERS, `reset` (the connection is closed before the call has an effect), `lost` (it is
closed afterwards, without an answer) or `hang`. CALL is create, get, list, cancel, delete, logs or
storage. All such calls fail, or only a share of them, the Nth, or the Nth to the Mth.
"""

from __future__ import annotations

import json
import math
import random
import re
import select
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Response

from distlaunch.emulator.buckets import BucketService
from distlaunch.emulator.emulator import Emulator
from distlaunch.emulator.http import ApiError
from distlaunch.emulator.job_service import message_types
from distlaunch.emulator.logs import LogStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.wrappers import Request

    from distlaunch.emulator.http import Route

_DENIED, _EXHAUSTED = (403, "PERMISSION_DENIED"), (429, "RESOURCE_EXHAUSTED")
# The code, status, reason and message of Google's.
ANSWERS = {
    "404": (404, "NOT_FOUND", "", "The requested resource was not found."),
    "429": (*_EXHAUSTED, "", "Resource has been exhausted (e.g. check quota)."),
    "500": (500, "INTERNAL", "", "Internal error encountered."),
    "503": (503, "UNAVAILABLE", "", "The service is currently unavailable."),
    "expired": (401, "UNAUTHENTICATED", "ACCESS_TOKEN_EXPIRED", "Expected OAuth 2 access token."),
    "denied": (*_DENIED, "IAM_PERMISSION_DENIED", "Permission '{permission}' denied on resource."),
    "disabled": (*_DENIED, "SERVICE_DISABLED", "{service} is disabled in project {project}."),
    "quota": (
        *_EXHAUSTED,
        "",
        "These quota metrics exceed quota limits: custom_model_training_cpus",
    ),
}
_FAULT = re.compile(r"(\w+)(?::([\d.]+))?(?:@(\w+))?(?:#(\d+)(?:-(\d+))?)?")


@dataclass
class CallFault:
    """A fault of API calls, and how many calls there were that it can affect."""

    name: str
    share: float
    call: str | None  # None for all
    first: int
    last: float
    random: random.Random
    count: int = 0

    def affects_next(self) -> bool:
        """Count a call, and return whether it fails."""
        self.count += 1
        return self.first <= self.count <= self.last and self.random.random() < self.share


@dataclass
class FailingEmulator(Emulator):
    """An emulator with faults of calls."""

    call_faults: str = ""
    hangs: threading.Event = field(default_factory=threading.Event)  # set when the first call does

    def routes(self, *services: Any) -> list[Route]:
        """Return the API methods, whose calls fail by the faults.

        Each fault has random numbers of its own, so that what happens to one kind of calls does not
        depend on how many there are of another.
        """
        message_types()  # its import would delay the first calls, by much on a busy machine
        parts = [part for part in self.call_faults.split(",") if part]
        seed = next((part for part in parts if part.startswith("seed:")), "seed:0")
        self._lock = threading.Lock()
        self._faults = [
            _read_fault(part, f"{seed} {number}")
            for number, part in enumerate(parts)
            if part != seed
        ]
        return [self._with_faults(route) for route in super().routes(*services)]

    def _with_faults(self, route: Route) -> Route:
        call = {LogStore: "logs", BucketService: "storage"}.get(
            type(route.handler.__self__), route.handler.__name__.strip("_")
        )

        def respond(request: Request, **arguments: Any) -> Any:
            fault = self._next(call)
            if fault is None:
                return route.handler(request, **arguments)
            if fault in ANSWERS:
                return _answer(fault, call, arguments.get("project", ""))
            connection = request.environ["werkzeug.socket"]
            if fault == "lost":
                with suppress(ApiError):
                    route.handler(request, **arguments)
            elif fault == "hang":
                request.get_data()
                self.hangs.set()
                select.select([connection], [], [])
            return Response(_reset(connection))

        return replace(route, handler=respond)

    def _next(self, call: str) -> str | None:
        """Count a call and return the name of the first fault that affects it, if any."""
        with self._lock:
            names = [
                fault.name
                for fault in self._faults
                if fault.call in (None, call) and fault.affects_next()
            ]
        return names[0] if names else None


def _read_fault(part: str, seed: str) -> CallFault:
    match = _FAULT.fullmatch(part)
    assert match, part
    name, share, call, first, last = match.groups()
    assert name in ANSWERS or name in ("reset", "lost", "hang"), part
    return CallFault(
        name,
        float(share or 1),
        call,
        int(first or 1),
        int(last or first or 0) or math.inf,
        random.Random(seed),  # noqa: S311 - not a secret
    )


def _reset(connection: socket.socket) -> Iterator[bytes]:
    """Close a connection in place of a response, so that the client sees a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RD)  # the server reads no other request
    connection.close()
    raise ConnectionResetError
    yield b""


def _answer(name: str, call: str, project: str) -> Response:
    code, status, reason, message = ANSWERS[name]
    service = {"logs": "logging", "storage": "storage"}.get(call, "aiplatform") + ".googleapis.com"
    permissions = {"logs": "logging.logEntries.list", "storage": "storage.objects.get"}
    permission = permissions.get(call, f"aiplatform.customJobs.{call}")
    text = message.format(service=service, permission=permission, project=project)
    metadata = {"service": service, "permission": permission, "consumer": f"projects/{project}"}
    info = {"reason": reason, "domain": "googleapis.com", "metadata": metadata}
    error = ApiError(code, text, status=status, **({"ErrorInfo": info} if reason else {}))
    headers = {"Retry-After": "1"} if code == 503 else None
    return Response(json.dumps(error.body), code, headers, content_type="application/json")
