"""What pip is to install into an image, line by line, and what speaks against it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.distributions import canonical
from distlaunch.errors import ImageError, did_you_mean
from distlaunch.image.requirements import has_gpus, read_requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import Surroundings
    from distlaunch.job.model import Job

NAME = "requirements.txt"  # where the job file names none

_COMMENT = re.compile(r"(?:^|\s)#.*")
_OPTIONS_BEHIND = re.compile(r"\s--?[a-z].*")
_URL = re.compile(r"(?:[a-z+]+)://\S+", re.IGNORECASE)
_LOGIN = re.compile(r"//[^/\s]*@")  # a token, most often
_EGG = re.compile(r"[#&]egg=([A-Za-z0-9._-]+)")
_WHEEL = re.compile(r"/([A-Za-z0-9._]+)-[^/]+\.whl")
_COMMIT = re.compile(r"\.git@[0-9a-f]{7,40}(?:#|$)|@[^/@]*v?\d[^/@]*(?:#|$)")
_ONE_EQUALS = re.compile(r"[\w.-]+(\[[\w,.-]*\])?\s*=\s*[\w.*]+(=\w+)?")
_FIRST_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*")
_OPTION = re.compile(r"(--?[A-Za-z][a-z-]*)")
# Those that may stand on a line of their own (pip's reference of the file's format).
_OPTIONS = (
    *("-i", "--index-url", "--extra-index-url", "--no-index", "-f", "--find-links"),
    *("-c", "--constraint", "-r", "--requirement", "-e", "--editable", "--no-binary"),
    *("--only-binary", "--prefer-binary", "--require-hashes", "--pre", "--trusted-host"),
    *("--use-feature", "--all-releases", "--only-final"),
)


@dataclass(frozen=True, slots=True)
class Listed:
    """One requirement.

    Parameters
    ----------
    where
        Its file and line.
    name
        The distribution, as PyPI knows it; empty where only pip will know.
    specifier
        Which versions will do.
    is_pinned
        Whether it will be the same next year, or nearly.
    is_constraint
        Whether it only says which versions will do, should another requirement ask for it.
    extras
        Asked for with it.
    """

    where: str
    name: str
    specifier: SpecifierSet
    is_pinned: bool
    is_constraint: bool = False
    extras: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Requirements:
    """What pip is to install.

    Parameters
    ----------
    name
        The file, None where pip installs nothing.
    listed
        What the lines say that could be read, those for another Python or system left out.
    problems
        What is wrong with the others.
    meant
        The distributions that the others seem to mean.
    is_read
        Whether there is a file to be read, or none that is asked for.
    """

    name: str | None
    listed: tuple[Listed, ...] = ()
    problems: tuple[Problem, ...] = ()
    meant: tuple[str, ...] = ()
    is_read: bool = True

    @property
    def installed(self) -> list[Listed]:
        """Those that are installed, and not only constrained."""
        return [each for each in self.listed if not each.is_constraint]

    @property
    def names(self) -> list[str]:
        """The distributions that are installed, empty words for those that are not known."""
        return [each.name for each in self.installed]

    def of(self, *names: str) -> list[Listed]:
        """Return what stands there of some distributions, constraints among them."""
        return [each for each in self.listed if each.name in names]


def read(job: Job, folder: Path, around: Surroundings) -> Requirements:
    """Read what pip is to install for a job."""
    name = around.requirements or job.image.requirements
    if name is None and not (folder / NAME).is_file():
        return Requirements(None)
    gpu = around.own.has_cuda if around.own else has_gpus(job.cluster)
    try:
        found = read_requirements(folder, name or NAME, gpu=bool(gpu))
    except ImageError as refusal:
        return Requirements(name or NAME, problems=(_unreadable(str(refusal)),), is_read=False)
    constraints = _constraints(found.files)
    listed: list[Listed] = []
    problems: list[Problem] = []
    meant: list[str] = []
    for file, text in found.files.items():
        its_own = (folder / file).read_text(encoding="utf-8-sig")
        made = its_own if gpu is None else text
        for (number, line), (_, said) in zip(_lines(made), _lines(its_own), strict=True):
            each = _line(f"{file}:{number}", line, said, around.python)
            if isinstance(each, Listed):
                listed.append(replace(each, is_constraint=file in constraints))
            elif each:
                problems.append(each)
                meant += _FIRST_NAME.findall(said)
    names = tuple(map(canonical, meant))
    return Requirements(name or NAME, tuple(listed), tuple(problems), names)


def unpinned(found: Requirements) -> Iterator[Problem]:
    """Yield what may be another version with the next build."""
    pinned = {each.name for each in found.listed if each.is_pinned}
    for each in found.installed:
        if each.name not in pinned and each.name:
            yield warning(
                "requirement-unpinned",
                each.where,
                f"{each.name} has no upper bound, so the next build may get another version",
                f"pin it, as {pin(each.name)}{where_versions_are(each.name)}",
            )


def clashes(found: Requirements) -> Iterator[Problem]:
    """Yield requirements of which no version can do as all of them say."""
    by_name: dict[str, list[Listed]] = {}
    for each in found.listed:
        by_name.setdefault(each.name, []).append(each)
    installed = set(found.names)
    for name, said in by_name.items():
        if name in installed and not any_version([each.specifier for each in said]):
            asked = " and ".join(dict.fromkeys(f"{name}{each.specifier}" for each in said))
            places = ", ".join(each.where for each in said[:-1])
            yield error(
                "requirement-clash",
                said[-1].where,
                f"no version is {asked}",
                f"say it once ({places} says it, too)" if places else "say versions that there are",
            )


def any_version(specifiers: Iterable[SpecifierSet]) -> bool:
    """Whether a version could be in all of some sets.

    A set of versions between bounds that is not empty holds one of the bounds or what comes right
    behind one, or is without a lower bound.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        both = SpecifierSet(",".join(map(str, specifiers)))
        bounds = [Version(each.version.removesuffix(".*")) for each in both]
    except (InvalidSpecifier, InvalidVersion):  # as ===1.0-anything, which only pip can tell
        return True
    behind = [Version(f"{bound.base_version}.0.0.0.1") for bound in bounds]
    return any(both.contains(each, prereleases=True) for each in [Version("0"), *bounds, *behind])


def pin(name: str) -> str:
    """Return a pinned requirement of a distribution, in this machine's version if it has one."""
    return f"{name}=={_version_here(name) or 'VERSION'}"


def where_versions_are(name: str) -> str:
    """Say how to find a distribution's versions, where this machine has none."""
    return "" if _version_here(name) else f" ('pip index versions {name}' lists them)"


@cache
def _version_here(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, with their numbers."""
    number = 0
    for piece in re.split(r"(?<!\\)\n", text):
        first, number = number + 1, number + 1 + piece.count("\n")
        line = _COMMENT.sub("", re.sub(r"\\\r?\n", " ", piece)).strip()
        if line and "${" not in line:
            yield first, line


def _line(
    where: str, line: str, said: str, python: tuple[int, int] | None
) -> Listed | Problem | None:
    """Read a line, as it is made for the cluster; what is wrong is told of the file's own."""
    if line.startswith("-"):
        return _option(where, line)
    return _requirement(where, line, said, python)


def _option(where: str, text: str) -> Problem | None:
    found = _OPTION.match(text)
    name = found[1] if found else text.split(maxsplit=1)[0]
    known = name if name.startswith("--") else name[:2]
    if known in _OPTIONS:
        return None
    return error(
        "requirement-unreadable",
        where,
        f"pip takes no option {name} there{did_you_mean(name, _OPTIONS).removesuffix('?')}",
        "take it out",
    )


def _requirement(
    where: str, line: str, its_own: str, python: tuple[int, int] | None
) -> Listed | Problem | None:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import SpecifierSet

    said = _OPTIONS_BEHIND.sub("", line).strip()
    if _URL.match(said):
        named = _EGG.search(said) or _WHEEL.search(said)
        name = canonical(named[1]) if named else ""
        return Listed(where, name, SpecifierSet(), is_pinned=_is_fixed(said))
    try:
        asked = Requirement(said)
    except InvalidRequirement:
        return _misread(where, _OPTIONS_BEHIND.sub("", its_own).strip())
    if not _is_asked(asked, python):
        return None
    return Listed(
        where,
        canonical(asked.name),
        asked.specifier,
        is_pinned=_is_bounded(asked),
        extras=frozenset(asked.extras),
    )


def _misread(where: str, said: str) -> Problem:
    remedy = "expected a requirement of pip's, as numpy==2.3.1"
    if _ONE_EQUALS.fullmatch(said):
        name, _, version = said.partition("=")
        remedy = f"write {name.strip()}=={version.strip().partition('=')[0]}"
    shown = _LOGIN.sub("//…@", said)[:80]
    return error("requirement-unreadable", where, f"pip cannot read {shown!r}", remedy)


def _is_asked(asked: Requirement, python: tuple[int, int] | None) -> bool:
    """Whether a requirement is one in the image, too; one whose marker makes no sense may be."""
    try:
        return asked.marker is None or asked.marker.evaluate(_environment(python))
    except ValueError:
        return True


def _is_bounded(asked: Requirement) -> bool:
    if asked.url:
        return _is_fixed(asked.url)
    return any(each.operator in ("==", "===", "~=", "<", "<=") for each in asked.specifier)


def _is_fixed(url: str) -> bool:
    return not url.startswith("git+") or _COMMIT.search(url) is not None


def _constraints(files: Mapping[str, str]) -> set[str]:
    """Return the files that are taken in as constraints."""
    import posixpath

    taken = re.compile(r"^\s*(?:-c|--constraint)(?:\s*=\s*|\s*)(\S+)", re.MULTILINE)
    return {
        posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
        for file, text in files.items()
        for path in taken.findall(text)
    }


def _environment(python: tuple[int, int] | None) -> dict[str, str]:
    """Return what markers are answered with: a Linux on x86-64, as all images are."""
    there = {
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    if python:
        version = f"{python[0]}.{python[1]}"
        there |= {"python_version": version, "python_full_version": f"{version}.0"}
    return there


def _unreadable(refusal: str) -> Problem:
    """Return the problem that a line of ours tells, which ends with the remedy."""
    told, _, remedy = refusal.partition("; ")
    where, _, what = told.partition(": ")
    if where == "image.requirements":
        return error("requirement-unreadable", where, what, remedy or "name a file of the project")
    return error(
        "requirement-unreadable", where, what, remedy or "write requirements as pip takes them"
    )
