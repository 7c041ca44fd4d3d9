"""Read requirements files of pip.

TensorFlow is chosen in the build that a cluster's machines need.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from distlaunch.errors import ImageError, os_reason
from distlaunch.files import read_regular
from distlaunch.job.model import DEFAULT_REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Expressions that Python and GNU sed read alike: the rendered Dockerfile has the latter use them.
_TENSORFLOW = (
    r"^([ \t]*)tensorflow([-_.]+cpu|[ \t]*\[[ \t]*and-cuda[ \t]*\])?([ \t]*(\r?|[=<>!~;#(].*))$"
)
_LEFT_ALONE = r"--hash|\\\r?$"  # hashes are of one package; they follow on continued lines, too
_FOR_GPUS, _FOR_CPUS = "tensorflow[and-cuda]", "tensorflow-cpu"

_INCLUDE = re.compile(r"\s*(-r|--requirement|-c|--constraint)(?:\s*=\s*|\s*)(\S.*?)\s*(?:\s#.*)?")
_EDITABLE = re.compile(r"(?:-e|--editable)[ \t=]+")
_URL = re.compile(r"[a-z+]+://|(?:git\+)?git@", re.IGNORECASE)
_LOCAL = re.compile(
    r"(?!.*(?:://|\$\{|git@))(?:(?:-[efi]|--(?:editable|find-links|index-url|extra-index-url))[ =.]"
    r"|(?!-)(?:\.|\S*/|\S+\.(?:whl|zip|tgz|tar\.\w+)(?=[\s;]|$)))|(?!.*\$\{).*\bfile:",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_TRAILING_OPTIONS = re.compile(r"\s--?[a-z].*")
_HASH = re.compile(r"--hash[= ]+(\w+:[0-9a-fA-F]+)")
_LOGIN = re.compile(r"//[^/\s]*@")  # a token, most often
_NAME_IN_URL = re.compile(r"[#&]egg=([A-Za-z0-9._-]+)|/([A-Za-z0-9._]+)-[^/]+\.whl")

# The command that makes requirements.txt from a file of another tool; locked versions come first.
EXPORTS = {
    "uv.lock": "uv export --no-hashes --no-emit-project -o requirements.txt",
    "poetry.lock": "poetry export --without-hashes -o requirements.txt",
    "Pipfile": "pipenv requirements > requirements.txt",
    "environment.yml": "pip list --format=freeze --exclude-editable > requirements.txt",
    "requirements.in": "pip-compile -o requirements.txt requirements.in",
    "pyproject.toml": "pip-compile -o requirements.txt pyproject.toml",
    "setup.py": "pip-compile -o requirements.txt setup.py",
}
_DEPENDENCIES = re.compile(
    r"^ *dependencies *[=:](?!\s*\[\s*\])|^\[+(?:tool\.poetry\.dep|packages?\b)|install_requires",
    re.MULTILINE,
)
_LINUX = {  # the values of environment markers (PEP 508) in every image
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "extra": "",
}


@dataclass(frozen=True, slots=True)
class RequirementLine:
    """A line of a requirements file, with the lines that continue it.

    `text` is as written, without comments and hashes. `requirement` is made for the cluster; it is
    None for an option, a URL, a line with a variable and a line that pip cannot read.
    """

    location: str  # FILE:LINE
    text: str
    is_constraint: bool
    requirement: Requirement | None
    hashes: tuple[str, ...] = ()  # ALGORITHM:DIGEST of the files that may be installed

    @property
    def shown(self) -> str:
        """The text for a message, without tokens."""
        return repr(_LOGIN.sub("//…@", self.text)[:80])

    @property
    def name(self) -> str:
        """The distribution's normalized name, empty if it is not known."""
        if self.requirement:
            return canonicalize_name(self.requirement.name)
        match = _NAME_IN_URL.search(self.url or "")
        return canonicalize_name(match[1] or match[2]) if match else ""

    @property
    def url(self) -> str | None:
        """The URL that it is installed from, None for versions of an index."""
        source = _EDITABLE.sub("", self.text, count=1)
        return source if _URL.match(source) else getattr(self.requirement, "url", None)

    @property
    def is_local(self) -> bool:
        """Whether pip would install from or search a path of this machine."""
        return _LOCAL.match(self.text) is not None

    @property
    def is_readable(self) -> bool:
        """Whether pip can read it, as far as that is known: it may be an option."""
        is_option = self.text[0] == "-" or "${" in self.text
        return is_option or self.is_local or bool(self.requirement or self.url)


@dataclass(frozen=True, slots=True)
class Requirements:
    """A requirements file and the files that it includes, by their paths in the project.

    `files` are made for the cluster, `originals` are as written; `constraints` are included with
    ``-c``.
    """

    name: str
    files: Mapping[str, str]
    originals: Mapping[str, str]
    constraints: frozenset[str]

    @property
    def changed(self) -> tuple[str, ...]:
        """The files that were changed for the cluster."""
        return tuple(path for path, text in self.files.items() if text != self.originals[path])

    def lines(self) -> Iterator[RequirementLine]:
        """Yield the lines of all files, without comments and empty lines."""
        for path, text in self.files.items():
            originals = _logical_lines(self.originals[path])
            for made, (_, original, _) in zip(_logical_lines(text), originals, strict=True):
                number, line, hashes = made
                is_constraint, requirement = path in self.constraints, parse_requirement(line)
                location = f"{path}:{number}"
                yield RequirementLine(location, original, is_constraint, requirement, hashes)


def read_requirements(folder: Path, name: str, *, gpu: bool | None) -> Requirements:
    """Read a requirements file of the project and all files that it includes.

    TensorFlow becomes the build for GPUs or the one for CPUs; it is kept if `gpu` is None.
    ImageError is raised if a file is missing, not text, or of another tool than pip.
    """
    name = posixpath.normpath(name)
    if export := EXPORTS.get(posixpath.basename(name)):
        raise ImageError(
            f"{name} is not a requirements file of pip",
            where="image.requirements",
            remedy=f"run '{export}', and set image.requirements: {DEFAULT_REQUIREMENTS}",
        )
    files: dict[str, str] = {}
    originals: dict[str, str] = {}
    constraints: set[str] = set()
    pending = [name]
    while pending:
        path = pending.pop()
        if path not in files:
            text = originals[path] = read_text(folder, path)
            files[path] = text if gpu is None else for_cluster(text, gpu=gpu)
            for option, included in _includes(path, text):
                pending.append(included)
                if option in ("-c", "--constraint"):
                    constraints.add(included)
    return Requirements(name, files, originals, frozenset(constraints))


def find_unread(folder: Path) -> str | None:
    """Return the file of another tool that lists a project's dependencies, None without one."""
    files = [folder / name for name in EXPORTS if (folder / name).is_file()]
    texts = {file.name: file.read_text("utf-8", "replace") for file in files}
    lists = (name for name in texts if name.endswith(".in") or _DEPENDENCIES.search(texts[name]))
    return next(lists, None)


def markers(version: str | None) -> dict[str, str]:
    """Return the values of environment markers (PEP 508) in an image with a version of Python.

    Without a version, only those of the system.
    """
    if version is None:
        return dict(_LINUX)
    short = version.rpartition(".")[0]
    names = ("implementation_version", "python_full_version")
    return {**_LINUX, **dict.fromkeys(names, version), "python_version": short}


def applies(requirement: Requirement, markers: Mapping[str, str]) -> bool:
    """Return whether a requirement is for a Python and a system."""
    try:
        return requirement.marker is None or requirement.marker.evaluate(dict(markers))
    except ValueError:
        return True


def for_cluster(text: str, *, gpu: bool) -> str:
    """Return a requirements file with the TensorFlow build that a cluster's machines need.

    ``tensorflow`` and ``tensorflow[and-cuda]`` become ``tensorflow-cpu`` without GPUs;
    ``tensorflow`` and ``tensorflow-cpu`` become ``tensorflow[and-cuda]`` with GPUs. Versions,
    markers, other lines, and lines with a URL or hashes are kept.
    """
    name = rf"\g<1>{_FOR_GPUS if gpu else _FOR_CPUS}\g<3>"
    return "\n".join(
        line
        if re.search(_LEFT_ALONE, line)
        else re.sub(_TENSORFLOW, name, line, count=1, flags=re.IGNORECASE)
        for line in text.split("\n")
    )


def sed_script(*, gpu: bool) -> str:
    """Return the script for ``sed -E`` that does the same as `for_cluster`."""
    name = _FOR_GPUS if gpu else _FOR_CPUS
    return rf"/{_LEFT_ALONE}/!s/{_TENSORFLOW}/\1{name}\3/I"


def read_text(folder: Path, path: Path | str) -> str:
    """Return a text file of the project; ImageError is raised if it cannot be read."""
    try:
        return read_regular(folder / path).decode("utf-8-sig")
    except UnicodeDecodeError:
        remedy = "save it as UTF-8 or name another file"
        raise ImageError("not UTF-8 text", where=str(path), remedy=remedy) from None
    except ValueError as problem:
        what = f"cannot be read ({problem})"
        raise ImageError(what, where=str(path), remedy="name another file") from None
    except OSError as problem:
        what, remedy = f"cannot be read ({os_reason(problem)})", "fix it, or name another file"
        raise ImageError(what, where=str(path), remedy=remedy) from None


def _includes(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the option and the path in the project of each file that a file includes."""
    for number, line in enumerate(text.split("\n"), start=1):
        match = _INCLUDE.fullmatch(line)
        if match and not _URL.match(match[2]):
            included = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))
            if included.startswith(("/", "../")) or included in ("..", "."):
                what = f"{match[2]}: expected a file in the project's folder, e.g. requirements.txt"
                raise ImageError(what, where=f"{path}:{number}")
            yield match[1], included


def _logical_lines(text: str) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield the number of each line's first line, its text without comments, and its hashes."""
    number = 1
    for piece in re.split(r"(?<!\\)\n", text):
        line = _COMMENT.sub("", re.sub(r"\\\r?\n", " ", piece)).strip()
        if line.startswith("-"):
            yield number, line, ()
        elif line:
            yield number, _TRAILING_OPTIONS.sub("", line).strip(), tuple(_HASH.findall(line))
        number += 1 + piece.count("\n")


def parse_requirement(line: str) -> Requirement | None:
    """Return the requirement of a line, None if pip or `packaging` reads none."""
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None
