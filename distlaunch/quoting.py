"""Values quoted for the file they are written to: a reader gets the value, and nothing else.

The rules are those of Docker's reference for Dockerfiles, of Go's ``filepath.Match`` for COPY, of
POSIX for the shell, and of YAML 1.1 and 1.2 both.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_GLOB = re.compile(r"[*?\[\\]")
_IN_WORDS = re.compile(r"[\\$\"']")
_IN_QUOTES = re.compile(r"[\\$\"]")
_PLAIN_YAML = re.compile(r"(--?)?[A-Za-z/][A-Za-z0-9_./@+=-]*(:[A-Za-z0-9_./@+=-]+)*")
_NOT_TEXT_IN_YAML = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}


class CannotBeQuoted(ValueError):
    """A value for which the place has no way of writing it."""


def exec_form(words: Iterable[str]) -> str:
    """Write words as the JSON array that ENTRYPOINT, CMD and COPY take.

    No variables are filled in there but in COPY's (see `source` and `destination`). ``<`` is
    written by its number, as ``<<`` starts a here-document.
    """
    return "[" + ", ".join(map(_json, words)) + "]"


def source(path: str) -> str:
    """Write a path of the context for COPY, which takes it for a pattern with variables."""
    return destination(_GLOB.sub(_as_class, path))


def destination(path: str) -> str:
    """Write a path of the image for COPY, which fills variables in and takes quotes away."""
    return _IN_WORDS.sub(r"\\\g<0>", path)


def docker_value(text: str) -> str:
    """Write the value of an ENV, LABEL or ARG."""
    return '"' + _IN_QUOTES.sub(r"\\\g<0>", _one_line(text)) + '"'


def shell_word(text: str) -> str:
    """Write a word of a RUN instruction."""
    return shlex.quote(_one_line(text))


def bash(text: str) -> str:
    """Write a word of a bash script, which may have several lines."""
    if "\0" in text:
        raise CannotBeQuoted("no program can be given a NUL character")
    return shlex.quote(text)


def bash_words(words: Iterable[str]) -> str:
    """Write a command of a bash script."""
    return " ".join(map(bash, words))


def yaml_text(value: Any) -> str:
    """Write plain data as YAML: a scalar as one line, anything else as a block."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """One that quotes what any version of YAML could take for something else than text."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    def text_of(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        is_plain = _PLAIN_YAML.fullmatch(text) and text.lower() not in _NOT_TEXT_IN_YAML
        style = None if is_plain else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, text_of)
    text: str = yaml.dump(
        value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _json(text: str) -> str:
    if "\0" in text:
        raise CannotBeQuoted("no program can be given a NUL character")
    quoted = json.dumps(text, ensure_ascii=False).replace("<", "\\u003c")
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in quoted)


def _as_class(match: re.Match[str]) -> str:
    r"""Write a character as the class that holds it alone; ``\*`` is not read alike everywhere."""
    return "[\\\\]" if match[0] == "\\" else f"[{match[0]}]"


def _one_line(text: str) -> str:
    for char in text:
        if char != "\t" and (char < " " or char == "\x7f"):
            raise CannotBeQuoted(f"a Dockerfile has no way to write {char!r} in it")
    return text


FILTERS = {"yaml": yaml_text} | {
    each.__name__: each
    for each in (exec_form, source, destination, docker_value, shell_word, bash, bash_words)
}
"""The filters of templates."""
