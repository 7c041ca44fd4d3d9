"""Match paths against .dockerignore as Docker does (moby/patternmatcher)."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from distlaunch.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Callable

Matches: TypeAlias = "tuple[bool, ...]"  # for each pattern whether it matches a path or its parents

_GLOB = re.compile(r"[*?\[\\]")
_OF_NAME = re.compile(r"\*\*/(?!.*\*\*)[^/\[]+", re.DOTALL)  # in any folder
_TO_ESCAPE = re.compile(r"[*?\[\]\\^]")
_CLASS = re.compile(r"(\^?)((?:\\.|[^\\\]])+)\]", re.DOTALL)


def pattern_for(path: str) -> str:
    """Return the pattern that matches exactly this path, which must not contain a line break."""
    escaped = _TO_ESCAPE.sub(r"\\\g<0>", path)
    if escaped[0] in "#!":
        escaped = f"\\{escaped}"
    if escaped[0].isspace():
        escaped = f"[{escaped[0]}]{escaped[1:]}"
    if escaped[-1].isspace():
        escaped = f"{escaped[:-1]}[{escaped[-1]}]"
    return escaped


@dataclass(frozen=True, slots=True)
class _Pattern:
    text: str
    negated: bool
    matches: Callable[[str], object]


class IgnoreRules:
    """The patterns of an ignore file; ImageError is raised if one is malformed, with its line."""

    def __init__(self, text: str) -> None:
        self._patterns: list[_Pattern] = []
        for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
            pattern = line.strip()
            if not pattern or line.startswith("#"):
                continue
            try:
                self._patterns.append(_parse(pattern))
            except (re.error, ValueError) as problem:
                raise ImageError(
                    f"invalid pattern {pattern!r} ({problem})",
                    where=f".dockerignore:{number}",
                    remedy="correct it or remove the line",
                ) from None
        self.root: Matches = (False,) * len(self._patterns)
        # Most paths match none of some fifty patterns: those of names are tried all at once.
        of_names = [each for each in self._patterns if _OF_NAME.fullmatch(each.text)]
        names = "|".join(_as_regex(each.text.removeprefix("**/")) for each in of_names)
        self._may_match_name = re.compile(names).fullmatch
        self._others = [each.matches for each in self._patterns if each not in of_names]
        self._ignored_by: dict[Matches, bool] = {}

    def match(self, path: str, parent: Matches) -> tuple[bool, Matches]:
        """Return whether a path is ignored, and the matches to pass on for its children.

        `parent` are the matches of the path's folder; `root` at the top.
        """
        name = path.rpartition("/")[2]
        if not self._may_match_name(name) and not any(matches(path) for matches in self._others):
            if parent not in self._ignored_by:
                of_parent = zip(self._patterns, parent, strict=True)
                last = [pattern.negated for pattern, is_matched in of_parent if is_matched][-1:]
                self._ignored_by[parent] = last == [False]
            return self._ignored_by[parent], parent
        ignored = False
        matches = []
        for pattern, matched_above in zip(self._patterns, parent, strict=True):
            # Docker does not evaluate a pattern that would not change the result, and then does not
            # record a match for the children either.
            matched = matched_above or (pattern.negated == ignored and bool(pattern.matches(path)))
            if matched:
                ignored = not pattern.negated
            matches.append(matched)
        return ignored, tuple(matches)

    def may_include_below(self, folder: str) -> bool:
        """Return whether a ``!`` pattern may include something in an ignored folder."""
        parts = folder.split("/")
        return any(_may_match_below(each.text, parts) for each in self._patterns if each.negated)


def _parse(line: str) -> _Pattern:
    negated = line.startswith("!")
    if not (pattern := line.removeprefix("!").strip()):
        raise ValueError("nothing after '!'")
    pattern = posixpath.normpath(pattern).replace("//", "/", 1)
    if len(pattern) > 1:
        pattern = pattern.removeprefix("/")
    return _Pattern(pattern, negated, _matcher(pattern))


def _matcher(pattern: str) -> Callable[[str], object]:
    if not _GLOB.search(pattern):
        return pattern.__eq__
    suffix = pattern.removeprefix("**")
    if suffix != pattern and not _GLOB.search(suffix):
        return lambda path: path.endswith(suffix) or f"/{path}" == suffix
    return re.compile(_as_regex(pattern)).fullmatch


def _as_regex(pattern: str) -> str:
    regex, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*" and pattern.startswith("*", at):
            at += 2 if pattern.startswith("/", at + 1) else 1
            regex += ".*" if at == len(pattern) else "(?:.*/)?"
        elif char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif char == "[":
            character_class = _CLASS.match(pattern, at)
            if character_class is None:
                raise ValueError("'[' without ']'")
            regex += _class_as_regex(*character_class.groups())
            at = character_class.end()
        elif char == "\\" and at < len(pattern):
            regex += re.escape(pattern[at])
            at += 1
        else:
            regex += re.escape(char)
    return regex


def _class_as_regex(negation: str, characters: str) -> str:
    escaped = re.sub(
        r"\\(.)|([\[&~|])",
        lambda match: re.escape(match[1] or match[2]),
        characters,
        flags=re.DOTALL,
    )
    return f"[{negation}{escaped}]"


def _may_match_below(pattern: str, folder: list[str]) -> bool:
    """Return whether a pattern may match a path in a folder; True in doubt."""
    steps = pattern.split("/")
    for step, part in zip(steps, folder, strict=False):
        if _GLOB.search(step):
            return True
        if step != part:
            return False
    return len(steps) > len(folder)
