"""Read the commands of RUN instructions, and the arguments of ``pip install`` among them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distlaunch.image.dockerfile import Instruction

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PYTHON, _PIP = re.compile(r"(?:.*/)?python[\d.]*"), re.compile(r"(?:.*/)?pip[\d.]*")
# Options of `pip install` that are followed by a value, without -r, -c and -e.
_WITH_VALUE = (
    *("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--trusted-host", "--proxy"),
    *("-t", "--target", "--prefix", "--root", "--src", "--platform", "--python-version", "--abi"),
    *("--implementation", "--no-binary", "--only-binary", "--upgrade-strategy", "--report"),
    *("-C", "--config-settings", "--cert", "--client-cert", "--cache-dir", "--log", "--timeout"),
    *("--retries", "--progress-bar", "--exists-action", "--use-feature", "--root-user-action"),
)


@dataclass(frozen=True, slots=True)
class PipInstall:
    """The arguments of a ``pip install``.

    `packages` are names, URLs and paths, those of ``-e`` too; `options` are all other options than
    ``-r`` and ``-c``, with their values.
    """

    files: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def run_commands(instruction: Instruction) -> tuple[tuple[str, ...], ...]:
    """Return the words of each command of a RUN instruction.

    Redirections are left out, and variables are not expanded. A here-document is not read: see
    `Instruction.has_heredoc`. Text that no shell can read is one command.
    """
    if instruction.word != "RUN":
        return ()
    return (instruction.array,) if instruction.array else tuple(_split(instruction.arguments))


def pip_install(command: Sequence[str]) -> PipInstall | None:
    """Return the arguments of a command, None if it is no ``pip install``."""
    words = list(command)
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words.pop(0)
    if len(words) > 2 and _PYTHON.fullmatch(words[0]) and words[1] == "-m":
        del words[:2]
    if not words or not _PIP.fullmatch(words[0]):
        return None
    subcommand = next((word for word in words[1:] if not word.startswith("-")), None)
    if subcommand != "install":
        return None
    words.remove("install")
    return _arguments(words[1:])


def _arguments(words: list[str]) -> PipInstall:
    files: list[str] = []
    constraints: list[str] = []
    packages: list[str] = []
    options: list[str] = []
    lists = {
        "-r": files,
        "--requirement": files,
        "-c": constraints,
        "--constraint": constraints,
        "-e": packages,
        "--editable": packages,
    }
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word[:2] in lists and len(word) > 2:
            name, equals, value = word[:2], "=", word[2:]
        if name in lists:
            lists[name].append(value if equals else words.pop(0) if words else "")
        elif word.startswith("-"):
            options.append(word)
            if word in _WITH_VALUE and words:
                options.append(words.pop(0))
        else:
            packages.append(word)
    return PipInstall(tuple(files), tuple(constraints), tuple(packages), tuple(options))


def _split(text: str) -> Iterator[tuple[str, ...]]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        yield tuple(text.split())
        return
    command: list[str] = []
    while words:
        word = words.pop(0)
        if not word or set(word) - set("();<>|&"):
            command.append(word)
        elif set(word) & set("<>"):
            del words[:1]
        elif command:
            yield tuple(command)
            command = []
    if command:
        yield tuple(command)
