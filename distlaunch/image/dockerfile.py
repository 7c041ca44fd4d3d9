"""A Dockerfile, as far as one has to understand it: its stages, what they begin with and copy."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distlaunch.image.registry.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)\s*", re.ASCII)
_HEREDOC = re.compile(r"<<(-?)\s*([\"']?)([a-zA-Z_]\w*)\2")
_FLAG = re.compile(r"--\S+")
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+as\s+(\S+))?", re.IGNORECASE)
_NEWER_FLAG = re.compile(
    r"RUN\s+--(mount|network|security)|(COPY|ADD)\s+(--\S+\s+)*--(link|chmod|parents|exclude)"
)
# One word of ENV or LABEL: bare pieces and quoted ones, as the shell joins them.
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""", re.DOTALL)
_PIECE = re.compile(
    r"""(?P<bare>(?:[^"'\\]|\\.)+)|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'""", re.DOTALL
)
_USE = re.compile(
    r"\\(?P<escaped>.)|\$(?:(?P<plain>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?::(?P<sign>[-+])(?P<word>[^{}]*))?\})",
    re.ASCII | re.DOTALL,
)
_FILLED = re.compile(r"\$(?:\{(\w+)\}|(\w+))", re.ASCII)
_VARIABLE = re.compile(r"(?<!\\)(?:\\\\)*\$")
_WITH_SOURCES = ("COPY", "ADD")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Parameters
    ----------
    word
        What it is, as ``RUN``.
    rest
        What stands behind that, continued lines joined.
    text
        The lines as they were written.
    """

    word: str
    rest: str
    text: str

    @property
    def arguments(self) -> str:
        """What stands behind the flags."""
        rest = self.rest
        while flag := _FLAG.match(rest):
            rest = rest[flag.end() :].lstrip()
        return rest

    @property
    def array(self) -> tuple[str, ...] | None:
        """The words of the form that is a JSON array, None where it is not of that form."""
        try:
            read = json.loads(self.arguments)
        except ValueError:
            return None
        is_array = isinstance(read, list) and all(isinstance(word, str) for word in read)
        return tuple(read) if is_array else None

    @property
    def sources(self) -> tuple[str, ...]:
        """What it copies from the context."""
        if self.word not in _WITH_SOURCES or "--from=" in self.rest:
            return ()
        words = self.array or tuple(self.arguments.split())
        return words[:-1]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a build.

    Parameters
    ----------
    base
        What it begins with: an image, or the name of another stage.
    name
        Its own name, if it has one.
    start
        The instruction FROM.
    instructions
        Those after it.
    """

    base: str
    name: str | None
    start: Instruction
    instructions: tuple[Instruction, ...]

    @property
    def text(self) -> str:
        """Its lines, without comments between them."""
        return self.start.text + "".join(each.text for each in self.instructions if each.word)


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A Dockerfile by its stages.

    Parameters
    ----------
    head
        What stands before the first stage: directives for the parser, and arguments.
    stages
        Its stages, the last one being the image.
    needs_buildkit
        Whether it says what the classic builder does not understand.
    """

    head: str
    stages: tuple[Stage, ...]
    needs_buildkit: bool

    @property
    def text(self) -> str:
        """All of it, without comments that say nothing to an engine."""
        return self.head + "".join(stage.text for stage in self.stages)

    @property
    def bases(self) -> tuple[str, ...]:
        """Return the images that it begins with, those that arguments name left out."""
        named = {stage.name for stage in self.stages}
        found = dict.fromkeys(stage.base for stage in self.stages)
        return tuple(b for b in found if b not in named and b != "scratch" and "$" not in b)

    def last_on(self, base: str) -> str:
        """Return a Dockerfile of the last stage alone, on another image."""
        last = replace(self.stages[-1], start=Instruction("FROM", base, f"FROM {base}\n"))
        return self.head + last.text


@dataclass(frozen=True, slots=True)
class Code:
    """What a last stage does that does no more than to lay the project's files over a stage.

    Parameters
    ----------
    root
        The folder of the files in the image.
    settings
        What the image's config says.
    """

    root: str
    settings: Settings


def read(text: str) -> Dockerfile:
    """Read a Dockerfile; what has no stage is left for the engine to refuse."""
    head, stages, arguments = "", [], dict[str, str]()
    for instruction in _instructions(text):
        found = _FROM.match(instruction.rest) if instruction.word == "FROM" else None
        if found:
            name = found[2].lower() if found[2] else None
            stages.append(Stage(_filled(found[1], arguments), name, instruction, ()))
        elif stages:
            last = stages.pop()
            told = (*last.instructions, instruction)
            stages.append(Stage(last.base, last.name, last.start, told))
        elif instruction.word:
            head += instruction.text
            arguments |= pairs_in(instruction.rest) or {}
    directives = "".join(f"# {name}={value}\n" for name, value in _directives(text).items())
    return Dockerfile(directives + head, tuple(stages), _needs_buildkit(text))


def code_of(dockerfile: Dockerfile) -> Code | None:
    """Return what the last stage lays over the one before it, None where it does more than that."""
    if len(dockerfile.stages) < 2:
        return None
    environment, last = dockerfile.stages[-2:]
    if last.base.lower() != environment.name:
        return None
    root = _workdir(environment)
    entrypoint: tuple[str, ...] = ()
    env: dict[str, str] = {}
    labels: dict[str, str] = {}
    copied = False
    for each in last.instructions:
        if each.word == "WORKDIR" and each.rest.startswith("/") and "$" not in each.rest:
            root = each.rest.strip('"')
        elif each.word == "COPY" and not copied and _copies_all(each, root):
            copied = True
        elif each.word == "ENTRYPOINT" and each.array:
            entrypoint = each.array
        elif each.word in ("ENV", "LABEL") and (pairs := pairs_in(each.rest)) is not None:
            (env if each.word == "ENV" else labels).update(pairs)
        elif each.word:
            return None
    if not (copied and entrypoint and root):
        return None
    return Code(root, Settings(entrypoint, env, root, labels))


def pairs_in(text: str, variables: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Return the pairs of ``NAME=VALUE …``.

    None for the old form ``NAME VALUE``, and for a variable that cannot be expanded.

    Parameters
    ----------
    variables
        What ``$NAME``, ``${NAME}``, ``${NAME:-word}`` and ``${NAME:+word}`` are expanded with, see
        https://docs.docker.com/reference/dockerfile/#environment-replacement; by default none is.
    """
    cannot_expand = _VARIABLE.search(text) if variables is None else "$" in _USE.sub("", text)
    words = _WORD.findall(text)
    if cannot_expand or not all("=" in word for word in words):
        return None
    return dict(_unquoted(word, variables or {}).split("=", 1) for word in words)


def _workdir(stage: Stage) -> str:
    found = [each.rest for each in stage.instructions if each.word == "WORKDIR"]
    return found[-1].strip('"') if found and found[-1].strip('"').startswith("/") else ""


def _filled(base: str, arguments: Mapping[str, str]) -> str:
    """Fill in the arguments of a base image, as far as they have default values."""

    def value(found: re.Match[str]) -> str:
        return arguments.get(found[1] or found[2], found[0])

    return _FILLED.sub(value, base)


def _copies_all(instruction: Instruction, root: str) -> bool:
    words = instruction.array or tuple(instruction.rest.split())
    if len(words) != 2 or words[0] not in (".", "./"):
        return False
    return words[1] in (".", "./") or words[1].rstrip("/") == root


def _unquoted(word: str, variables: Mapping[str, str]) -> str:
    return "".join(_value(piece, variables) for piece in _PIECE.finditer(word))


def _value(piece: re.Match[str], variables: Mapping[str, str]) -> str:
    def replace_use(found: re.Match[str]) -> str:
        if found["escaped"]:
            is_escape = piece["bare"] is not None or found["escaped"] in '"\\$`'
            return found["escaped"] if is_escape else found[0]
        value = variables.get(found["plain"] or found["name"], "")
        if found["sign"] and bool(value) == (found["sign"] == "+"):
            return _USE.sub(replace_use, found["word"])
        return value

    if piece["single"] is not None:
        return piece["single"]
    return _USE.sub(replace_use, piece["bare"] if piece["double"] is None else piece["double"])


def _instructions(text: str) -> Iterator[Instruction]:
    """Give the instructions; comments and empty lines are given as ones without a word."""
    lines = iter(text.splitlines(keepends=True))
    escape = _escape(text)
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            yield Instruction("", "", line)
            continue
        told, joined = line, _joined(line, escape)
        while joined.is_open and (more := next(lines, None)) is not None:
            told += more
            if not more.lstrip().startswith("#") and more.strip():
                joined = _joined(more, escape, joined.text)
        told += "".join(_heredocs(joined.text, lines))
        word, _, rest = joined.text.strip().partition(" ")
        word, tab, behind = word.partition("\t")
        yield Instruction(word.upper(), (behind + tab + rest).strip(), told)


@dataclass(frozen=True, slots=True)
class _Joined:
    text: str
    is_open: bool


def _joined(line: str, escape: str, before: str = "") -> _Joined:
    """Join a line to those before it; it is open if it ends with the escape character."""
    bare = line.rstrip()
    is_open = bare.endswith(escape)
    return _Joined(before + (bare[:-1] if is_open else bare), is_open)


def _heredocs(instruction: str, lines: Iterator[str]) -> Iterator[str]:
    """Give the lines of the documents that an instruction has below it."""
    if instruction.split(maxsplit=1)[0].upper() not in ("RUN", *_WITH_SOURCES):
        return
    for dash, _, name in _HEREDOC.findall(instruction):
        for line in lines:
            yield line
            if (line.lstrip("\t") if dash else line).rstrip("\r\n") == name:
                break


def _escape(text: str) -> str:
    return _directives(text).get("escape", "\\")


def _directives(text: str) -> dict[str, str]:
    """Return what the comments at the very beginning tell the parser."""
    found = {}
    for line in text.splitlines():
        directive = _DIRECTIVE.fullmatch(line.strip())
        if directive is None:
            break
        found[directive[1].lower()] = directive[2]
    return found


def _needs_buildkit(text: str) -> bool:
    if "syntax" in _directives(text):
        return True
    return any(_is_newer(each) for each in _instructions(text))


def _is_newer(instruction: Instruction) -> bool:
    """Whether only BuildKit understands an instruction: its flags, or a document below it."""
    if _NEWER_FLAG.match(f"{instruction.word} {instruction.rest}"):
        return True
    is_document = _HEREDOC.search(instruction.arguments) and "\n" in instruction.text.rstrip("\n")
    return instruction.word in ("RUN", *_WITH_SOURCES) and bool(is_document)
