"""Which files of a folder an ignore file leaves out, by Docker's rules.

Docker's documentation tells them (build context, ".dockerignore files"), and moby/patternmatcher on
GitHub makes them exact: a pattern is matched against a path from the folder's root and against
those of all folders above it, and the last one that matches wins.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distlaunch.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Callable

NOTHING = -1  # no pattern matches

# What Go takes for a space; Python would strip more.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_TO_ESCAPE = re.compile(r"[*?\[\]\\^]")
_GLOB = re.compile(r"[*?\[\\]")
_PLAIN_SUFFIX = re.compile(r"\*\*/\*([^*?\[\]\\/]+)")  # as **/*.pyc


def pattern_for(path: str) -> str:
    """Return the pattern that matches a path, posix and relative, and no other.

    A path with a line break has none.
    """
    escaped = _TO_ESCAPE.sub(r"\\\g<0>", path)
    if escaped[0] in "#!":
        escaped = f"\\{escaped}"
    if escaped[0] in _SPACE:
        escaped = f"[{escaped[0]}]{escaped[1:]}"
    if escaped[-1] in _SPACE:
        escaped = f"{escaped[:-1]}[{escaped[-1]}]"
    return escaped


class IgnoreRules:
    """The patterns of an ignore file.

    Patterns that follow each other and do the same, leave out or let in, are a group. What is to
    be known of a folder to judge what lies in it is the last group that matches its path or one
    above: groups before that one have no say any more.

    Parameters
    ----------
    text
        The file's content; nothing is ignored where it is empty.
    name
        What the file is called in an error.

    Raises
    ------
    ImageError
        If a pattern cannot be read, with the number of its line.
    """

    def __init__(self, text: str, name: str = ".dockerignore") -> None:
        self._groups: list[_Group] = []
        for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
            self._read(line, f"{name}:{number}")
        matchers = [(number, group.matcher()) for number, group in enumerate(self._groups)]
        # By the last match so far, what else may match, the last first. `NOTHING` is at the end.
        lasts = (*range(len(matchers)), NOTHING)
        self._later = [list(reversed(matchers[last + 1 :])) for last in lasts]

    def ignores(self, path: str) -> bool:
        """Whether a path, posix and relative to the context's root, is left out."""
        last, above = NOTHING, ""
        for name in path.split("/"):
            last = self.last_match(above + name, name, last)
            above += f"{name}/"
        return self.leaves_out(last)

    def last_match(self, path: str, name: str, above: int) -> int:
        """Return the last group that matches a path or a folder above it, or `NOTHING`.

        Parameters
        ----------
        path, name
            The path and the last part of it.
        above
            What this returned for the folder that it lies in; `NOTHING` at the root.
        """
        for number, matches in self._later[above]:
            if matches(path, name):
                return number
        return above

    def leaves_out(self, match: int) -> bool:
        """Whether what has this last match is left out."""
        return match != NOTHING and not self._groups[match].lets_in

    def lets_in_below(self, path: str, match: int) -> bool:
        """Whether something in a folder that is left out may be let in again.

        Parameters
        ----------
        path
            The folder's path.
        match
            Its last match.
        """
        parts = path.split("/")
        later = [group for group in self._groups[match + 1 :] if group.lets_in]
        patterns = [pattern for group in later for pattern in group.patterns]
        return any(_may_match_below(pattern, parts) for pattern in patterns)

    def _read(self, line: str, place: str) -> None:
        said = line.strip(_SPACE)
        if line.startswith("#") or not said:
            return
        try:
            self._add(said)
        except (re.error, ValueError) as problem:
            raise ImageError(f"{place}: not a pattern ({problem}), got {said!r}") from None

    def _add(self, line: str) -> None:
        lets_in = line.startswith("!")
        if not (pattern := line.removeprefix("!").strip(_SPACE)):
            raise ValueError("nothing stands behind the '!'")
        cleaned = posixpath.normpath(pattern).replace("//", "/", 1)
        if len(cleaned) > 1:
            cleaned = cleaned.removeprefix("/")
        if not self._groups or self._groups[-1].lets_in != lets_in:
            self._groups.append(_Group(lets_in))
        self._groups[-1].add(cleaned)


@dataclass
class _Group:
    """Patterns that do the same, sorted by how quickly they are told to match."""

    lets_in: bool
    patterns: list[str] = field(default_factory=list)
    _paths: set[str] = field(default_factory=set)
    _names: set[str] = field(default_factory=set)
    _starts: tuple[str, ...] = ()
    _ends: tuple[str, ...] = ()
    _of_name: list[str] = field(default_factory=list)
    _of_path: list[str] = field(default_factory=list)

    def add(self, pattern: str) -> None:
        """Take a pattern in; it is cleaned already."""
        self.patterns.append(pattern)
        before, anywhere, rest = pattern.partition("**/")
        if not _GLOB.search(pattern):
            self._paths.add(pattern)
        elif anywhere and not before and rest and not _GLOB.search(rest):
            if "/" in rest:
                self._of_path.append(_as_regex(pattern))
            else:
                self._names.add(rest)
        elif pattern.startswith("**") and not _GLOB.search(pattern[2:]):
            self._ends += (pattern[2:],)  # '**' alone ends everything
        elif pattern.endswith("/**") and not _GLOB.search(pattern[:-2]):
            self._starts += (pattern[:-2],)
        elif found := _PLAIN_SUFFIX.fullmatch(pattern):
            self._ends += (found[1],)
        elif anywhere and not before and not re.search(r"\*\*|[\[/]", rest):
            self._of_name.append(_as_regex(rest))
        else:
            self._of_path.append(_as_regex(pattern))

    def matcher(self) -> Callable[[str, str], bool]:
        """Return what tells whether a pattern matches a path itself, given with its last part.

        It is asked of every file, and so it keeps all it needs at hand.
        """
        names, paths = frozenset(self._names), frozenset(self._paths)
        ends, starts = self._ends, self._starts
        of_name = re.compile("|".join(self._of_name)).fullmatch if self._of_name else None
        of_path = re.compile("|".join(self._of_path)).fullmatch if self._of_path else None

        def matches(path: str, name: str) -> bool:
            return (
                name in names
                or path in paths
                or path.endswith(ends)
                or path.startswith(starts)
                or (of_name is not None and of_name(name) is not None)
                or (of_path is not None and of_path(path) is not None)
            )

        return matches


def _may_match_below(pattern: str, parts: list[str]) -> bool:
    """Whether a pattern may match something in a folder, which itself it does not match."""
    steps = pattern.split("/")
    for step, part in zip(steps, parts, strict=False):
        if "**" in step or "[" in step or "\\" in step:
            return True  # it may span more than this part; looking costs little
        if not re.fullmatch(_as_regex(step), part):
            return False
    return len(steps) > len(parts)


def _as_regex(pattern: str) -> str:
    """Translate a pattern; what can't be translated is no pattern.

    Raises
    ------
    ValueError
        If a class of characters is not closed, or empty.
    re.error
        If a class holds a range that goes backwards.
    """
    made, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*" and pattern.startswith("*", at):
            at += 2 if pattern.startswith("/", at + 1) else 1
            made += ".*" if at == len(pattern) else "(?:.*/)?"
        elif char == "*":
            made += "[^/]*"
        elif char == "?":
            made += "[^/]"
        elif char == "[":
            one, at = _class_of(pattern, at)
            made += one
        elif char == "\\" and at < len(pattern):
            made += re.escape(pattern[at])
            at += 1
        else:
            made += re.escape(char)
    re.compile(made)
    return made


def _class_of(pattern: str, at: int) -> tuple[str, int]:
    """Translate a class of characters behind its ``[``; return it with where it ends."""
    found = re.compile(r"(\^?)((?:\\.|[^\\\]])+)\]", re.DOTALL).match(pattern, at)
    if found is None:
        raise ValueError("a '[' without its ']'")
    inside = re.sub(
        r"\\(.)|([\[&~|])",
        lambda each: re.escape(each[1] or each[2]),
        found[2],
        flags=re.DOTALL,
    )
    return f"[{found[1]}{inside}]", found.end()
