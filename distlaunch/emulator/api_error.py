"""Errors as Google's APIs answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

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


class ApiError(Exception):
    """The emulator refuses a request; `details` are google.rpc messages as JSON with ``@type``."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        status: str = "",
        details: Iterable[dict[str, Any]] = (),
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = headers
        error = {"code": code, "message": message, "status": status or _STATUS.get(code, "UNKNOWN")}
        self.body: dict[str, Any] = {"error": error}
        if details:
            self.body["error"]["details"] = list(details)


def field_error(path: str, message: str) -> ApiError:
    """Return the error for a field of a request."""
    violation = {"field": path, "description": message}
    details = [{"@type": f"{_TYPE}.BadRequest", "fieldViolations": [violation]}]
    return ApiError(400, f"{path}: {message}", details=details)


def error_info(reason: str, domain: str, **metadata: str) -> dict[str, Any]:
    """Return the detail with the machine-readable reason of an error."""
    return {
        "@type": f"{_TYPE}.ErrorInfo",
        "reason": reason,
        "domain": domain,
        "metadata": metadata,
    }
