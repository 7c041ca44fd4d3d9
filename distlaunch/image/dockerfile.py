"""Parse a Dockerfile: its stages, their base images and what they copy."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.image.registry.manifests import ImageSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)\s*", re.ASCII)
# As in BuildKit's parser: a word of its own, so neither ``<<< text`` nor ``$((1<<N))``.
_HEREDOC = re.compile(r"\d*<<(-?)([^<]+)")
_FLAG = re.compile(r"--\S+")
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+as\s+(\S+))?", re.IGNORECASE)
# One word of a shell: unquoted and quoted pieces without space between them.
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""", re.DOTALL)
_PIECE = re.compile(
    r"""(?P<bare>(?:[^"'\\]|\\.)+)|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'""", re.DOTALL
)
_USE = re.compile(
    r"\\(?P<escaped>.)|\$(?:(?P<plain>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?::(?P<sign>[-+])(?P<word>[^{}]*))?\})",
    re.ASCII | re.DOTALL,
)
_VARIABLE_NAME = re.compile(r"\$(?:\{(\w+)\}|(\w+))", re.ASCII)
_WITH_SOURCES = ("COPY", "ADD")


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction: its name (`word`, e.g. ``RUN``) and the text after it (`rest`).

    `text` has the lines as written, with here-documents, `line` the number of the first one; an
    instruction that is in no file has `line` 0.
    """

    word: str
    rest: str
    text: str
    line: int = 0

    @property
    def arguments(self) -> str:
        """The text after the flags."""
        rest = self.rest
        while flag := _FLAG.match(rest):
            rest = rest[flag.end() :].lstrip()
        return rest

    @property
    def array(self) -> tuple[str, ...] | None:
        """The words of the JSON array form, None for the shell form."""
        try:
            read = json.loads(self.arguments)
        except ValueError:
            return None
        is_array = isinstance(read, list) and all(isinstance(word, str) for word in read)
        return tuple(read) if is_array else None

    @property
    def sources(self) -> tuple[str, ...]:
        """The paths and patterns that COPY or ADD takes from the context."""
        if self.word not in _WITH_SOURCES or "--from=" in self.rest:
            return ()
        words = self.array or tuple(self.arguments.split())
        return words[:-1]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: its base image or stage, its name in lower case, FROM and what follows."""

    base: str
    name: str | None
    start: Instruction
    instructions: tuple[Instruction, ...]

    @property
    def text(self) -> str:
        """Its lines without comments between instructions."""
        return self.start.text + "".join(each.text for each in self.instructions)


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A Dockerfile.

    `head` has the parser directives and ARG instructions before the first stage. The last stage is
    the image.
    """

    head: str
    stages: tuple[Stage, ...]

    @property
    def text(self) -> str:
        """The whole file without comments, except parser directives."""
        return self.head + "".join(stage.text for stage in self.stages)

    @property
    def bases(self) -> tuple[str, ...]:
        """The base images, without those whose name has a variable without a default value."""
        names = {stage.name for stage in self.stages}
        images = dict.fromkeys(stage.base for stage in self.stages)
        return tuple(
            image
            for image in images
            if image.lower() not in names and image != "scratch" and "$" not in image
        )

    @property
    def base(self) -> str | None:
        """The image that the last stage is built from, directly or by other stages.

        None without stages, and if its name has a variable without a default value.
        """
        bases: dict[str | None, str] = {}
        base: str | None = None
        for stage in self.stages:
            base = bases.get(stage.base.lower(), stage.base)
            bases[stage.name] = base
        return None if base is None or "$" in base else base

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all stages, without FROM."""
        return tuple(each for stage in self.stages for each in stage.instructions)


def read_dockerfile(text: str) -> Dockerfile:
    """Parse a Dockerfile; a file without stages is left for Docker to refuse."""
    directives = _directives(text)
    head = "".join(f"# {name}={value}\n" for name, value in directives.items())
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for each in _instructions(text, directives.get("escape", "\\")):
        match = _FROM.match(each.rest) if each.word == "FROM" else None
        if match:
            base = _with_defaults(match[1], arguments)
            stages.append(Stage(base, match[2].lower() if match[2] else None, each, ()))
        elif stages:
            last = stages.pop()
            stages.append(replace(last, instructions=(*last.instructions, each)))
        else:
            head += each.text
            arguments |= parse_pairs(each.rest, arguments) or {}
    return Dockerfile(head, tuple(stages))


def code_settings(dockerfile: Dockerfile) -> ImageSettings | None:
    """Return the settings of a last stage that copies the project's files to its WORKDIR.

    None if it does anything else besides setting ENTRYPOINT.
    """
    if len(dockerfile.stages) < 2:
        return None
    environment, last = dockerfile.stages[-2:]
    copies, entrypoints = [], []
    for each in last.instructions:
        if each.word == "COPY" and (each.array or tuple(each.rest.split())) == (".", "."):
            copies.append(each)
        elif each.word == "ENTRYPOINT" and each.array:
            entrypoints.append(each.array)
        else:
            return None
    folders = [each.rest.strip('"') for each in environment.instructions if each.word == "WORKDIR"]
    is_code = last.base.lower() == environment.name and copies and entrypoints
    if not (is_code and folders and folders[-1].startswith("/") and "$" not in folders[-1]):
        return None
    return ImageSettings(entrypoints[-1], workdir=folders[-1])


def parse_pairs(text: str, variables: Mapping[str, str]) -> dict[str, str] | None:
    """Return the pairs of ``NAME=VALUE …`` with the variables expanded.

    None for the old form ``NAME VALUE`` and for what Docker does not expand either. See
    https://docs.docker.com/reference/dockerfile/#environment-replacement.
    """
    words = _WORD.findall(text)
    if "$" in _USE.sub("", text) or not all("=" in word for word in words):
        return None
    return dict(_unquoted(word, variables).split("=", 1) for word in words)


def _with_defaults(base: str, arguments: Mapping[str, str]) -> str:
    """Replace the variables in a base image's name that have a default value."""
    return _VARIABLE_NAME.sub(lambda match: arguments.get(match[1] or match[2], match[0]), base)


def _unquoted(word: str, variables: Mapping[str, str]) -> str:
    return "".join(_value(piece, variables) for piece in _PIECE.finditer(word))


def _value(piece: re.Match[str], variables: Mapping[str, str]) -> str:
    def expand(use: re.Match[str]) -> str:
        if use["escaped"]:
            is_escape = piece["bare"] is not None or use["escaped"] in '"\\$`'
            return use["escaped"] if is_escape else use[0]
        value = variables.get(use["plain"] or use["name"], "")
        if use["sign"] and bool(value) == (use["sign"] == "+"):
            return _USE.sub(expand, use["word"])
        return value

    if piece["single"] is not None:
        return piece["single"]
    return _USE.sub(expand, piece["bare"] if piece["double"] is None else piece["double"])


def _instructions(text: str, escape: str) -> Iterator[Instruction]:
    """Yield the instructions, without comments and empty lines."""
    lines = _lines(text)
    start = 0
    while start < len(lines):
        if _is_comment(lines[start]):
            start += 1
            continue
        joined, end = _continued(lines, start, escape)
        word, rest = (*joined.split(maxsplit=1), "")[:2]
        if word.upper() in ("RUN", *_WITH_SOURCES):
            end = _after_heredocs(lines, end, rest)
        yield Instruction(word.upper(), rest.strip(), "".join(lines[start:end]), start + 1)
        start = end


def _lines(text: str) -> list[str]:
    """Return the lines with their ends; other characters than a newline end none for Docker."""
    return io.StringIO(text, newline="\n").readlines()


def _continued(lines: list[str], start: int, escape: str) -> tuple[str, int]:
    """Return an instruction without line breaks and comments, and the index of the next line."""
    joined = ""
    for number, line in enumerate(lines[start:], start + 1):
        if number > start + 1 and _is_comment(line):
            continue
        joined += line.rstrip().removesuffix(escape)
        if not line.rstrip().endswith(escape):
            return joined, number
    return joined, len(lines)


def _after_heredocs(lines: list[str], start: int, instruction: str) -> int:
    """Return the index of the line after the here-documents of an instruction."""
    for dash, name in _heredocs(instruction):
        while start < len(lines):
            line = lines[start].rstrip("\r\n")
            start += 1
            if (line.lstrip("\t") if dash else line) == name:
                break
    return start


def _heredocs(instruction: str) -> Iterator[tuple[str, str]]:
    """Yield the dash and the name of each here-document that an instruction begins."""
    for word in _WORD.findall(instruction):
        if match := _HEREDOC.fullmatch(word):
            yield match[1], match[2].strip("\"'")


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _directives(text: str) -> dict[str, str]:
    """Return the parser directives, which are comments at the very beginning."""
    directives = {}
    for line in _lines(text):
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            break
        directives[match[1].lower()] = match[2]
    return directives
