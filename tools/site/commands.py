"""The sections of all commands, from their options and help."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import click

from distlaunch.cli import distlaunch

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPECIAL = re.compile(r"([\\*_{}\[\]|#])")


def sections() -> str:
    """Return the options of all commands, and the section of each."""
    context = click.Context(distlaunch, info_name="distlaunch")
    return "\n".join([*_options(context, ""), *_subcommands(context, "")])


def escape(text: str) -> str:
    """Return text without a meaning for Markdown."""
    return _SPECIAL.sub(r"\\\1", text).replace("<", "&lt;")


def _subcommands(context: click.Context, path: str) -> Iterator[str]:
    assert isinstance(context.command, click.Group)
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        assert command is not None
        yield from _command(click.Context(command, context, name), f"{path} {name}".strip())


def _command(context: click.Context, path: str) -> Iterator[str]:
    """Yield the section of a command, whose heading's anchor is its name."""
    command = context.command
    yield f"{'##' if ' ' not in path else '###'} {path}\n"
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"```sh\n{context.command_path} {pieces}\n```\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from _paragraph(paragraph)
    yield from _options(context, f"{path.replace(' ', '-')}-")
    if isinstance(command, click.Group):
        yield from _subcommands(context, path)


def _paragraph(text: str) -> Iterator[str]:
    """Yield a paragraph of the help; one with kept lines are examples."""
    if text.startswith("\b"):
        lines = [line.strip() for line in text.splitlines()[1:]]
        yield "```sh\n" + "\n".join(lines) + "\n```\n"
    elif text.strip():
        yield escape(" ".join(text.split())) + "\n"


def _options(context: click.Context, prefix: str) -> Iterator[str]:
    """Yield the table of a command's options; each has an anchor, such as ``local--workers``."""
    rows = []
    for param in context.command.get_params(context):
        record = param.get_help_record(context)
        if record and record[1] and "--help" not in param.opts:  # the usage has the arguments
            name = max(param.opts, key=len).lstrip("-")
            rows.append(f"| `{record[0]}`{{ #{prefix or '-'}-{name} }} | {escape(record[1])} |")
    if rows:
        yield "\n".join(["| option | meaning |", "| --- | --- |", *rows, ""])
