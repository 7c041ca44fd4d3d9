"""What the emulator answers: JSON, bytes, and refusals in Google's words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    415: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_TYPE = "type.googleapis.com/google.rpc"


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as the services see it.

    Parameters
    ----------
    path
        Without the query, and with its escapes: a name of an object may hold a slash.
    options, repeated
        The query: of each name the last value, and all values.
    headers
        By their names in lower case.
    body
        Where the content is read from; it ends where the content ends.
    origin
        ``http://HOST:PORT`` as the client knows this server, for the addresses that it is given.
    """

    method: str
    path: str
    options: Mapping[str, str]
    repeated: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: BinaryIO
    origin: str

    def json(self) -> dict[str, Any]:
        """Return the content, which has to be an object of JSON; nothing is an empty one.

        Raises
        ------
        Refused
            If it is none.
        """
        content = self.body.read()
        try:
            read = json.loads(content or b"{}", parse_constant=_no_constant)
        except (ValueError, RecursionError) as problem:
            text = content[:200].decode(errors="replace")
            raise invalid_payload(f"Unexpected token. {problem}\n{text}") from None
        if not isinstance(read, dict):
            raise invalid_payload("Root element must be a message.")
        return read


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer.

    Parameters
    ----------
    content
        JSON, or bytes as they are, or an open file of which `length` bytes are sent.
    """

    content: dict[str, Any] | bytes | BinaryIO = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int = 0

    def close(self) -> None:
        """Close the file, if there is one, whether it was sent or not."""
        if not isinstance(self.content, (dict, bytes)):
            self.content.close()


class Refused(Exception):
    """The emulator refuses a request as Google would.

    Parameters
    ----------
    code
        The HTTP status.
    message
        What is wrong.
    status
        Google's word for the code, where it is not the usual one.
    details
        Messages of google.rpc as JSON, with ``@type``.
    headers
        Such as ``Retry-After``.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        status: str | None = None,
        details: Iterable[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or _STATUS.get(code, "UNKNOWN")
        self.details = list(details)
        self.headers = headers or {}

    @property
    def answer(self) -> Answer:
        """The refusal as it is sent."""
        error: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "status": self.status,
        }
        if self.details:
            error["details"] = self.details
        return Answer({"error": error}, self.code, self.headers)


def invalid_payload(*what: str, field: str = "") -> Refused:
    """Return the refusal of a request whose JSON is not what it should be."""
    return violations((field, f"Invalid JSON payload received. {each}") for each in what)


def violations(found: Iterable[tuple[str, str]], message: str | None = None) -> Refused:
    """Return the refusal of a request for its fields.

    Parameters
    ----------
    found
        Each field's path, empty for the whole, and what is wrong with it.
    message
        What is said of all of them, by default one line each.
    """
    listed = list(found)
    told = [{"field": path, "description": what} for path, what in listed]
    fields = [{key: value for key, value in each.items() if value} for each in told]
    detail = {"@type": f"{_TYPE}.BadRequest", "fieldViolations": fields}
    return Refused(400, message or "\n".join(what for _, what in listed), details=[detail])


def error_info(reason: str, domain: str, **metadata: str) -> dict[str, Any]:
    """Return the detail that tells machines why something was refused."""
    return {
        "@type": f"{_TYPE}.ErrorInfo",
        "reason": reason,
        "domain": domain,
        "metadata": metadata,
    }


def help_link(description: str, url: str) -> dict[str, Any]:
    """Return the detail that leads to a page."""
    return {"@type": f"{_TYPE}.Help", "links": [{"description": description, "url": url}]}


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
