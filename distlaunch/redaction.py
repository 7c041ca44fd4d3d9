"""Requests without the values of environment variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN = "(hidden)"
REDACTED = "(not recorded)"

_SECRET_NAME = re.compile(
    r"(?<![A-Z])(?:(?:API)?KEY|TOKEN|SECRETS?|PASSWORD|PASSWD|CREDENTIALS?|AUTH)(?![A-Z])",
    re.IGNORECASE,
)


def redact(request: Any) -> Any:
    """Return a request of Google's without the value of any variable, for a record."""

    def redact_variable(variable: Any) -> Any:
        return {**variable, "value": REDACTED} if isinstance(variable, dict) else variable

    return _map_env(request, redact_variable)


def hide_secrets(request: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a request of Google's without values that look secret, and the names of these.

    A variable looks secret by its name, such as ``WANDB_API_KEY``, or by a value that has the
    format of a key or contains a password.
    """
    from distlaunch.image import secrets

    names: dict[str, None] = {}

    def hide_variable(variable: Any) -> Any:
        if not (isinstance(variable, dict) and variable.get("value")):
            return variable
        name, value = str(variable.get("name")), str(variable["value"])
        if not (_SECRET_NAME.search(name) or secrets.by_content(f"{name}={value}".encode())):
            return variable
        names[name] = None
        return {**variable, "value": HIDDEN}

    return _map_env(request, hide_variable), tuple(names)


def _map_env(request: Any, change: Callable[[Any], Any]) -> Any:
    """Return a request with a function applied to each variable in it."""
    if isinstance(request, list):
        return [_map_env(item, change) for item in request]
    if not isinstance(request, dict):
        return request
    return {
        key: [change(variable) for variable in value]
        if key == "env" and isinstance(value, list)
        else _map_env(value, change)
        for key, value in request.items()
    }
