"""What to type in place of a command line that is refused."""

from __future__ import annotations

import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click
from click.exceptions import NoSuchCommand

from distlaunch.checks.trainer import option_names
from distlaunch.cli.completion import override_fields
from distlaunch.cli.options import WORDS
from distlaunch.redaction import redact_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_OTHER_NAMES = {
    **dict.fromkeys(("run", "start", "train"), "local"),
    **dict.fromkeys(("ps", "ls", "jobs"), "list"),
    **dict.fromkeys(("stop", "kill"), "cancel"),
    "download": "fetch",
    "help": "--help",
    "launch": "submit",
}
# Commands that create, end or delete something are suggested for a typing error only.
_CHANGING = {"submit", "resubmit", "cancel", "prune", "setup", "teardown"}
_REMEDIES = {
    **dict.fromkeys(("--async", "--background", "--no-wait"), "use --detach"),
    **dict.fromkeys(("--batch-sizes", "--compare", "--rounds"), "use 'distlaunch compare'"),
    "--args": "put the program's arguments after '--'",
    "--machine-type": "use --set cluster.chief.machine=TYPE",
    "--spot": "use --set scheduling.strategy=SPOT",
    "--workers": "use --set cluster.workers.count=N, the number of workers beside the chief",
    "--yes": "there is no prompt to confirm",
}


def explain(error: click.UsageError, commands: Collection[str]) -> str:
    """Return click's message of a usage error, with a remedy that fits."""
    if isinstance(error, NoSuchCommand):
        name = error.command_name
        typed = get_close_matches(name, commands, n=1, cutoff=0.8)
        close = typed or get_close_matches(name, {*commands} - _CHANGING, n=1)
        return _did_you_mean(error.message, [_OTHER_NAMES[name]] if name in _OTHER_NAMES else close)
    if isinstance(error, click.NoSuchOption) and error.ctx:
        return _explain_option(error.option_name, error.ctx)
    if error.ctx and error.ctx.args and WORDS in error.ctx.meta:  # a program before the dashes
        before = [word for word in error.ctx.meta[WORDS] if word not in error.ctx.args]
        return f"{error.message}: {_line(error.ctx, before, error.ctx.args)}"
    param = error.param if isinstance(error, click.BadParameter) else None
    if param and isinstance(param.type, click.IntRange):
        value, low, high = error.message.partition(" is not ")[0], param.type.min, param.type.max
        end = " or more" if high is None else f" to {high:,}"
        return f"{param.opts[0]}: expected a whole number, {low}{end}, got {value}"
    return error.format_message()


def _explain_option(name: str, context: click.Context) -> str:
    params = context.command.params
    own = {option for each in params for option in each.opts if option.startswith("--")}
    unknown, words = f"no such option {name!r}", context.meta.get(WORDS)
    if words is None:
        return _did_you_mean(unknown, _closest(name, own))
    if name in _REMEDIES:
        return f"{unknown}; {_REMEDIES[name]}"
    trainer = option_names() - own
    fields = override_fields(context, params[0], "") if "--set" in own else []
    wanted = f"{name.lstrip('-').replace('-', '_')}="
    field = next((field for field in fields if field.rpartition(".")[2] == wanted), None)
    if field and name not in trainer:
        return f"{unknown}; use --set {field}VALUE"
    close = [name] if name in trainer else _closest(name, own | trainer)
    if close and close[0] in own:
        return _did_you_mean(unknown, close)
    new, owner = (close[0], "trainer") if close else (name, "program")
    dashes = words.index("--") if "--" in words else len(words)
    parts: tuple[list[str], list[str]] = ([], [])  # before and after the dashes
    is_after = False
    for word in words[:dashes]:
        if word.startswith("-"):
            is_after = word.partition("=")[0] in {name, *trainer}
        parts[is_after].append(word.replace(name, new) if is_after else word)
    line = _line(context, parts[0], [*parts[1], *words[dashes + 1 :]])
    subject = f"{name} is not an option of {context.command_path!r}"
    return f"{subject}; put the {owner}'s {new} after '--': {line}"


def _did_you_mean(message: str, names: Sequence[str]) -> str:
    return f"{message.rstrip('.')}. Did you mean {names[0]!r}?" if names else message


def _closest(name: str, options: Iterable[str]) -> list[str]:
    """Return the closest option; the dashes, which all of them have, do not count."""
    names = {option.lstrip("-"): option for option in sorted(options)}
    return [names[close] for close in get_close_matches(name.lstrip("-"), names, n=1, cutoff=0.7)]


def _line(context: click.Context, before: Iterable[str], after: Iterable[str]) -> str:
    """Return the command's line, without the values of variables."""
    return f"{context.command_path} {shlex.join([*redact_words([*before]), '--', *after])}"
