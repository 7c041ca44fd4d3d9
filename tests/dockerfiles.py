"""A small, strict reader of Dockerfiles by Docker's reference, to read back what we write.

https://docs.docker.com/reference/dockerfile/: parser directives, format, escape, environment
replacement, shell and exec form, here-documents. What it doesn't know it refuses.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

INSTRUCTIONS = {"FROM", "RUN", "ENV", "LABEL", "COPY", "WORKDIR", "ENTRYPOINT"}
WITH_HEREDOCS = {"RUN", "COPY"}
WHITE = " \t"


@dataclass(frozen=True)
class Instruction:
    """One instruction; `rest` is the text after its word, continued lines joined."""

    word: str
    rest: str

    def exec_form(self) -> list[str]:
        words = json.loads(self.rest)
        assert isinstance(words, list)
        assert all(isinstance(word, str) for word in words)
        return words

    def pairs(self) -> dict[str, str]:
        """Read the text after ENV or LABEL."""
        found = {}
        for word in split(self.rest):
            name, equals, value = word.partition("=")
            assert equals, f"the old form: {word}"
            found[expanded(name)] = expanded(value)
        return found

    def copied(self) -> list[str]:
        """Read the words of COPY: patterns of sources, and the destination."""
        words = self.exec_form() if self.rest.startswith("[") else self.rest.split()
        return [expanded(word) for word in words]


def read(text: str) -> list[Instruction]:
    """Read a Dockerfile as the engine does, line by line."""
    instructions: list[Instruction] = []
    joined, open_line, in_directives = "", False, True
    for line in text.split("\n"):
        bare = line.removesuffix("\r").lstrip(WHITE)
        if in_directives and (found := re.fullmatch(r"#\s*(\w+)\s*=\s*(.+?)\s*", bare)):
            assert found[1].lower() in ("syntax", "check"), f"a directive: {bare}"
            continue
        in_directives = False
        if bare.startswith("#") or not bare.strip():
            continue  # also between continued lines
        joined += bare if not open_line else line.removesuffix("\r")
        open_line = bool(re.search(r"\\[ \t]*$", joined))
        if open_line:
            joined = re.sub(r"\\[ \t]*$", "", joined)
        else:
            instructions.append(instruction(joined))
            joined = ""
    assert not open_line, "the last line is to be continued"
    return instructions


def instruction(line: str) -> Instruction:
    word, _, rest = line.partition(" ")
    assert word in INSTRUCTIONS, f"no instruction: {line!r}"
    if word in WITH_HEREDOCS:
        assert not any(re.match(r"\d*<<-?[^<]", each) for each in split(rest)), "a heredoc"
    return Instruction(word, rest.strip(WHITE))


def split(text: str) -> list[str]:
    """Split at white space outside of quotes; quotes and backslashes stay."""
    words, word, quote, at = [], "", "", 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'" and at + 1 < len(text):
            word += text[at : at + 2]
            at += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char.isspace():
            words += [word] if word else []
            word = ""
            at += 1
            continue
        word += char
        at += 1
    assert not quote, f"a quote that is not closed: {text!r}"
    return [*words, word] if word else words


def expanded(word: str) -> str:
    """Take quotes and backslashes away as environment replacement does; no variable is known."""
    made, at = "", 0
    while at < len(word):
        char = word[at]
        at += 1
        if char == "'":
            end = word.index("'", at)
            made, at = made + word[at:end], end + 1
        elif char == '"':
            while word[at] != '"':
                assert word[at] != "$", f"a variable: {word!r}"
                if word[at] == "\\" and word[at + 1] in '"$\\':
                    at += 1
                made += word[at]
                at += 1
            at += 1
        elif char == "\\":
            made += word[at : at + 1]
            at += 1
        else:
            assert char != "$", f"a variable: {word!r}"
            made += char
    return made


def as_path_pattern(pattern: str) -> re.Pattern[str]:
    """Translate a source of COPY as Go's filepath.Match reads it."""
    made, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "[":
            found = re.compile(r"(\^?)((?:\\.|[^\\\]])+)\]").match(pattern, at)
            assert found, f"no pattern: {pattern!r}"
            inside = re.sub(r"\\(.)|(.)", lambda one: re.escape(one[1] or one[2]), found[2])
            made, at = f"{made}[{found[1]}{inside}]", found.end()
        elif char == "\\":
            made += re.escape(pattern[at])
            at += 1
        else:
            made += {"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char))
    return re.compile(made, re.DOTALL)
