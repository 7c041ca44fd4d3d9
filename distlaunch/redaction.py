"""Requests and command lines without the values of environment variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from distlaunch.errors import UsageError
from distlaunch.job.overrides import Override

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def redact_words(words: Sequence[str]) -> list[str]:
    """Return a command line without the values of variables in --set, and of --notify."""
    redacted = []
    for before, word in zip(("", *words), words, strict=False):
        option, equals, value = word.partition("=")
        if "--notify" in (before, option) and word != "--notify":
            redacted.append(f"{option}={REDACTED}" if option == "--notify" else REDACTED)
        elif option == "--set" and equals:
            redacted.append(f"--set={_redact_override(value)}")
        else:
            redacted.append(_redact_override(word) if before == "--set" else word)
    return redacted


def _redact_override(text: str) -> str:
    """Return PATH=VALUE without a value that is one of a variable, or contains some."""
    path, equals, _ = text.partition("=")
    try:
        override = Override.parse(text)
        steps = [step.partition("[")[0] for step in override.path]
        is_variable = "env" in steps or _has_env(override.value)
    except UsageError:  # it is refused, and may have been meant as one
        is_variable = True
    return f"{path}={REDACTED}" if equals and is_variable else text


def _has_env(value: Any) -> bool:
    if isinstance(value, dict):
        return "env" in value or any(map(_has_env, value.values()))
    return isinstance(value, list) and any(map(_has_env, value))


def _map_env(request: Any, change: Callable[[Any], Any]) -> Any:
    """Return a request, or a job, with a function applied to each variable in it."""
    if isinstance(request, list):
        return [_map_env(item, change) for item in request]
    if not isinstance(request, dict):
        return request
    return {
        key: _change_variables(value, change) if key == "env" else _map_env(value, change)
        for key, value in request.items()
    }


def _change_variables(variables: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to Google's list of variables, or to those of a job by their names."""
    if isinstance(variables, list):
        return [change(variable) for variable in variables]
    if isinstance(variables, dict):
        pairs = ({"name": name, "value": value} for name, value in variables.items())
        return {pair["name"]: change(pair)["value"] for pair in pairs}
    return variables
