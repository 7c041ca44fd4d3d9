"""Requests without the values of variables that look like secrets, to be shown."""

from __future__ import annotations

import re
from typing import Any

from distlaunch.image import secrets
from distlaunch.submit.records import map_env

HIDDEN = "(hidden)"

_NAME = re.compile(
    r"(?<![A-Z])(?:(?:API)?KEY|TOKEN|SECRETS?|PASSWORD|PASSWD|CREDENTIALS?|AUTH)(?![A-Z])",
    re.IGNORECASE,
)


def hide_secrets(request: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a request of Google's without values that look secret, and the names of these.

    A variable looks secret by its name, as ``WANDB_API_KEY``, or by a value that has the format of
    a key or holds a password.
    """
    names: dict[str, None] = {}

    def hide_variable(variable: Any) -> Any:
        if not (isinstance(variable, dict) and variable.get("value")):
            return variable
        name, value = str(variable.get("name")), str(variable["value"])
        if not (_NAME.search(name) or secrets.by_content("", f"{name}={value}".encode())):
            return variable
        names[name] = None
        return {**variable, "value": HIDDEN}

    return map_env(request, hide_variable), tuple(names)
