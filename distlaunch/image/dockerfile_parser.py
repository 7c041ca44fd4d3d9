"""Parse a Dockerfile: its stages, their base images and what they copy."""

from __future__ import annotations

import io
import json
import posixpath
import re
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)\s*", re.ASCII)
# As in BuildKit's parser: a word of its own, so neither ``<<< text`` nor ``$((1<<N))``.
_HEREDOC = re.compile(r"\d*<<(-?)([^<]+)")
_FLAGS = re.compile(r"\A(?:--\S+\s*)+")
_STAGE_FLAG = re.compile(r"--(?:from=|mount=\S*\bfrom=)([^\s,]+)")
_FROM = re.compile(r"(\S+)(?:\s+as\s+(\S+))?", re.IGNORECASE)
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
_WITH_SOURCES = ("COPY", "ADD")
# ARGs that BuildKit sets by itself, for images for linux/amd64.
_PLATFORM = {"TARGETPLATFORM": "linux/amd64", "TARGETOS": "linux", "TARGETARCH": "amd64"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction: its name (`word`, e.g. ``RUN``), flags with the space after them, arguments.

    `text` has the lines as written, with here-documents, `line` the number of the first one.
    """

    word: str
    flags: str
    arguments: str
    text: str
    line: int

    @property
    def rest(self) -> str:
        """The text after the name."""
        return self.flags + self.arguments

    @property
    def stage_names(self) -> list[str]:
        """The stages and images that it copies from or mounts."""
        return _STAGE_FLAG.findall(self.flags)

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
    def words(self) -> tuple[str, ...]:
        """The words of either form."""
        return self.array or tuple(self.arguments.split())

    @property
    def sources(self) -> tuple[str, ...]:
        """The paths and patterns that COPY or ADD takes from the context."""
        if self.word not in _WITH_SOURCES or "--from=" in self.rest:
            return ()
        return self.words[:-1]


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
    the image. `variables` are those of all ARG and ENV whose values are known, `unset_arguments`
    the names of ARG without a value.
    """

    head: str
    stages: tuple[Stage, ...]
    build_args: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    unset_arguments: frozenset[str] = frozenset()

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
        base = self.lineage[0].base if self.stages else None
        return None if base is None or "$" in base else base

    @property
    def lineage(self) -> tuple[Stage, ...]:
        """The stages that the image is built on, from that of a base image to the last one."""
        lineages: dict[str | None, tuple[Stage, ...]] = {}
        lineage: tuple[Stage, ...] = ()
        for stage in self.stages:
            lineage = (*lineages.get(stage.base.lower(), ()), stage)
            lineages[stage.name] = lineage
        return lineage

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all stages, without FROM."""
        return tuple(each for stage in self.stages for each in stage.instructions)


def read_dockerfile(
    text: str, build_args: Mapping[str, str] = MappingProxyType({}), target: str | None = None
) -> Dockerfile:
    """Parse a Dockerfile up to a target, if it has one; Docker refuses a file without stages."""
    directives = _directives(text)
    head = "".join(f"# {name}={value}\n" for name, value in directives.items())
    if build_args:  # a comment, so that they are a part of the text
        head += f"# image.build_args: {json.dumps(dict(build_args), sort_keys=True)}\n"
    arguments = dict(_PLATFORM)
    variables = dict(_PLATFORM)
    declared: set[str] = set()
    stages: list[Stage] = []
    for each in _instructions(text, directives.get("escape", "\\")):
        match = _FROM.match(each.arguments) if each.word == "FROM" else None
        variables |= _known_values(each, arguments | variables, build_args)
        declared |= {*each.words} if each.word == "ARG" else set()
        if match and target and stages and stages[-1].name == target.lower():
            break
        if match:
            base = expand(match[1], arguments) or match[1]
            stages.append(Stage(base, match[2].lower() if match[2] else None, each, ()))
        elif stages:
            last = stages.pop()
            stages.append(replace(last, instructions=(*last.instructions, each)))
        else:
            head += each.text
            arguments |= variables
    unset = frozenset(declared - variables.keys())
    return Dockerfile(head, tuple(stages), build_args, variables, unset)


def expand(word: str, variables: Mapping[str, str]) -> str | None:
    """Return a word without quotes and with its variables expanded, None if one is not known.

    See https://docs.docker.com/reference/dockerfile/#environment-replacement.
    """
    if "$" in _USE.sub("", word) or not variable_names(word) <= variables.keys():
        return None
    return "".join(_value(piece, variables) for piece in _PIECE.finditer(word))


def variable_names(word: str) -> set[str]:
    """Return the variables of a word for which it has no default."""
    uses = [use for use in _USE.finditer(word) if not use["escaped"] and not use["sign"]]
    return {use["plain"] or use["name"] for use in uses}


def below(source: str, path: str) -> str | None:
    """Return the path below what a source of COPY takes, empty for itself, None for no part."""
    source = posixpath.normpath(source).strip("/")
    if source in ("", "."):
        return path
    parts = path.split("/")
    depth = source.count("/") + 1
    head, rest = "/".join(parts[:depth]), "/".join(parts[depth:])
    return rest if fnmatchcase(head, source) else None


def _known_values(
    instruction: Instruction, known: Mapping[str, str], build_args: Mapping[str, str]
) -> dict[str, str]:
    """Return the values that ARG or ENV sets, as far as they are known."""
    if instruction.word not in ("ARG", "ENV"):
        return {}
    # The old form of ENV has no equals sign.
    words = _WORD.findall(re.sub(r"^(\w+)\s+(\S+)$", r"\1=\2", instruction.rest))
    pairs = [word.split("=", 1) for word in words if "=" in word]
    expanded = {name: expand(value, known) for name, value in pairs}
    values = {name: value for name, value in expanded.items() if value is not None}
    names = {word.partition("=")[0] for word in words} if instruction.word == "ARG" else set()
    return values | {name: build_args[name] for name in names & build_args.keys()}


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
        arguments = _FLAGS.sub("", rest.strip())
        flags, text = rest.strip().removesuffix(arguments), "".join(lines[start:end])
        yield Instruction(word.upper(), flags, arguments, text, start + 1)
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
    for match in filter(None, map(_HEREDOC.fullmatch, _WORD.findall(instruction))):
        name = match[2].strip("\"'")
        while start < len(lines):
            line = lines[start].rstrip("\r\n")
            start += 1
            if (line.lstrip("\t") if match[1] else line) == name:
                break
    return start


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
