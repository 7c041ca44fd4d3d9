"""Rules for the requirements of a project: readable, pinned, not contradictory, installable.

What a distribution provides and requires is read from the metadata of the packages that are
installed beside distlaunch, where ``distlaunch local`` runs. Nothing is known of other packages.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.image_runtime import tensorflow_tag
from distlaunch.errors import ImageError
from distlaunch.image.pip_secrets import VARIABLES, pip_secrets
from distlaunch.image.requirements import (
    EXPORTS,
    any_version,
    applies,
    find_unread,
    read_requirements,
)
from distlaunch.job.model import DEFAULT_BASE, DEFAULT_REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.errors import Diagnostic
    from distlaunch.image.requirements import RequirementLine
    from distlaunch.job.model import Job

_LOGIN = re.compile(r"//[^/\s]*@")  # a token, most often
_COMMIT = re.compile(r"\.git@[0-9a-f]{7,40}(?:#|$)|@[^/@]*v?\d[^/@]*(?:#|$)")
_ONE_EQUALS = re.compile(r"[\w.-]+(\[[\w,.-]*\])?\s*=\s*[\w.*]+(=\w+)?")
_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")
# Modules of another name than their distribution.
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "bs4": ("beautifulsoup4",),
    "cv2": ("opencv-python", "opencv-python-headless", "opencv-contrib-python"),
    "dateutil": ("python-dateutil",),
    "google.oauth2": ("google-auth",),
    "google.protobuf": ("protobuf",),
    "hypertune": ("cloudml-hypertune",),
    "PIL": ("pillow",),
    "skimage": ("scikit-image",),
    "sklearn": ("scikit-learn",),
    "tensorflow": _TENSORFLOW,
    "vertexai": ("google-cloud-aiplatform",),
    "yaml": ("pyyaml",),
}
_TOP_LEVELS = cache(importlib.metadata.packages_distributions)
_IN_BASE = {"pip", "setuptools", "wheel"}
_API_VERSION = re.compile(r"_v[0-9][a-z0-9]*$")
# What is wrong and the remedy, by a pattern of a name, a URL or a line; the first counts. Packages
# without a build for Linux are a list, because the metadata of an installed package names only the
# wheel that was installed.
_LOCAL = "is only on this machine"
_RULES = {
    r"\S+\s*@\s*(?:file:|\.{0,2}/).*": (
        _LOCAL,
        "write NAME==VERSION, as 'pip list --format=freeze' prints it",
    ),
    r"(?:-e\s*)?\./?(?:\[.*\])?": (_LOCAL, "remove it: the image has the module's folder"),
    r"\w+\+ssh:.*|(git\+)?git@.*": ("needs SSH keys, and a build has none", "write git+https://…"),
    r"pkg-resources|python-apt|command-not-found|ubuntu-[\w-]+|apturl|[^;]*==[^\s;]*\+ubuntu.*": (
        "is of Ubuntu's Python, and in no index",
        "remove it",
    ),
    "python": ("is no package of an index", f"remove it, and set image.base: {DEFAULT_BASE}"),
    "tensorflow-(?:intel|macos)": ("has no build for Linux", "write tensorflow in place of it"),
    "py(?:pi)?win32|pywinpty|windows-curses|tensorflow-metal|mlx-metal|pyobjc(?:-.*)?": (
        "has no build for Linux",
        "remove it, or end the line with ; sys_platform != 'linux'",
    ),
}
_TENSORFLOWS_FOR_LINUX = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu")
_VERSION_CONTROL = re.compile(r"\b(git|hg|svn)\+")  # of the full images of Python
_INDEX = re.compile(r"-[if] |index|find.links", re.IGNORECASE)
_LOCAL_VERSION = re.compile(r"[^/]*==\s*([^\s;+]+)\+")
_CLASSIFIER = "Programming Language :: Python :: 3."
_CUDA_LIBRARIES = "nvidia-"  # of tensorflow[and-cuda]; they require only each other


@dataclass(frozen=True)
class ImageRequirements:
    """The requirements that pip installs into an image.

    `written` are the lines without those for another Python or system. `refusal` is why the files
    cannot be read, None if they can, `unread` the file of another tool that lists dependencies.
    """

    runtime: ImageRuntime
    file: str = DEFAULT_REQUIREMENTS
    written: tuple[RequirementLine, ...] = ()
    refusal: Diagnostic | None = None
    unread: str | None = None

    @property
    def lines(self) -> list[RequirementLine]:
        """The requirements and URLs."""
        return [
            each for each in self.written if not each.is_local and (each.url or each.requirement)
        ]

    @property
    def installed(self) -> list[RequirementLine]:
        """The lines without constraints."""
        return [each for each in self.lines if not each.is_constraint]

    @property
    def names(self) -> set[str]:
        """The normalized names of the distributions, empty for a URL without a name."""
        return {each.name for each in self.installed}

    @cached_property
    def distributions(self) -> set[str]:
        """The names of the distributions in the image and of what they require, where known."""
        in_base = {"tensorflow", "tensorboard"} if tensorflow_tag(self.runtime.base) else set()
        pending = [each.requirement for each in self.installed if each.requirement]
        pending += map(Requirement, (self.names | in_base) - {""})
        done: set[tuple[str, str]] = set()
        while pending:
            requirement = pending.pop()
            name = canonicalize_name(requirement.name)
            for extra in ("", *requirement.extras):
                found = None if (name, extra) in done else _distribution(name)
                done.add((name, extra))
                required = map(Requirement, (found and found.requires) or ())
                markers = {**self.runtime.markers, "extra": extra}
                pending += (each for each in required if applies(each, markers))
        return _IN_BASE | {name for name, _ in done}

    @cached_property
    def unverified(self) -> list[str]:
        """The requirements whose modules are not known, as they are not installed here."""
        names = [each.text for each in self.written if not each.is_readable]
        for each in self.installed:
            specifier = each.requirement.specifier if each.requirement else None
            if specifier is None or not _is_installed(each.name, specifier):
                names.append(each.name or each.text)
        dependencies = sorted(self.distributions - self.names - _IN_BASE)
        return names + [name for name in dependencies if not _is_installed(name)]

    def describe_missing(self, module: str, distribution: str) -> tuple[str, str]:
        """Return what is wrong where no distribution provides a module, and the remedy."""
        add = f"add {pin(distribution, f' to {self.file}')}"
        if self.unread:
            add = f"run '{EXPORTS[self.unread]}'"
        return f"no requirement provides {module}", add

    def provide(self, modules: Sequence[str]) -> bool:
        """Return whether a distribution provides one of some modules, or may by its name."""
        if not self.distributions.isdisjoint(providers(modules[0])):
            return True  # without looking through all that is installed here, which takes long
        installed = next(filter(None, map(_installed_providers, modules)), set())
        if not self.distributions.isdisjoint(installed):
            return True
        top = modules[0].partition(".")[0].replace("_", "").lower()
        return any(top in each.replace("-", "").lower() for each in self.unverified)


def load_requirements(job: Job, folder: Path, runtime: ImageRuntime) -> ImageRequirements:
    """Read the requirements of a job."""
    file = job.image.requirements or DEFAULT_REQUIREMENTS
    if not job.image.requirements and not (folder / DEFAULT_REQUIREMENTS).is_file():
        return ImageRequirements(runtime, unread=None if runtime.own else find_unread(folder))
    gpu = None if runtime.own else job.has_gpus
    try:
        lines = tuple(read_requirements(folder, file, gpu=gpu).lines())
    except ImageError as refusal:
        return ImageRequirements(runtime, file, refusal=refusal.problems[0])
    markers = runtime.markers
    return ImageRequirements(runtime, file, tuple(each for each in lines if _is_for(each, markers)))


def _is_for(line: RequirementLine, markers: Mapping[str, str]) -> bool:
    """Return whether a line, also one with a URL alone, is for a Python and a system."""
    try:
        marked = line.requirement or Requirement(f"a; {line.text.rpartition(' ; ')[2]}")
    except InvalidRequirement:  # it has no marker
        return True
    return applies(marked, markers)


def problems(requirements: ImageRequirements) -> Iterator[Problem]:
    """Yield problems of the lines, each by itself and together."""
    if not requirements.runtime.has("python") and "python" not in requirements.runtime.script:
        what = f"{requirements.runtime.base} has no Python, which pip and the program need"
        yield error("python-missing", "image.base", what, f"set image.base: {DEFAULT_BASE}")
    if refusal := requirements.refusal:
        remedy = refusal.remedy or "fix or remove it"
        yield error("requirement-unreadable", refusal.where, refusal.what, remedy)
    if unread := requirements.unread:
        what = f"not read, and there is no {DEFAULT_REQUIREMENTS}: the image gets no packages"
        yield warning("requirements-missing", unread, what, f"run '{EXPORTS[unread]}'")
    yield from (_unreadable(each) for each in requirements.written if not each.is_readable)
    yield from _clashes(requirements)
    pinned = {each.name for each in requirements.lines if _is_pinned(each)}
    for each in requirements.installed:
        if each.name and each.name not in pinned:
            what = f"{each.name} has no upper bound, so the next build may get another version"
            remedy = f"pin it, e.g. {pin(each.name)}"
            yield warning("requirement-unpinned", each.location, what, remedy)
    for each in requirements.written:
        if not each.is_constraint and (obstacle := _obstacle(each, requirements)):
            make = warning if requirements.runtime.script else error  # its author may see to it
            yield make("requirement-unavailable", each.location, *obstacle)
        elif not each.is_constraint and (unknown := _unknown_builds(each, requirements.runtime)):
            yield warning("requirement-unavailable", each.location, *unknown)


def _clashes(requirements: ImageRequirements) -> Iterator[Problem]:
    by_name: dict[str, list[RequirementLine]] = {}
    for each in requirements.lines:
        by_name.setdefault(each.name, []).append(each)
    for name in sorted(requirements.names):
        specifiers = [each.requirement.specifier for each in by_name[name] if each.requirement]
        if not any_version(specifiers):
            wanted = " and ".join(dict.fromkeys(f"{name}{each}" for each in specifiers))
            *others, last = [each.location for each in by_name[name]]
            remedy = "write a range that has versions"
            if others:
                remedy = f"write one range only (the other is at {', '.join(others)})"
            yield error("requirement-clash", last, f"no version is {wanted}", remedy)


def _unreadable(line: RequirementLine) -> Problem:
    remedy = "expected a requirement, e.g. numpy==2.3.1"
    if _ONE_EQUALS.fullmatch(line.text):
        name, _, version = line.text.partition("=")
        remedy = f"write {name.strip()}=={version.strip().partition('=')[0]}"
    return error("requirement-unreadable", line.location, f"pip cannot read {_shown(line)}", remedy)


def _obstacle(line: RequirementLine, requirements: ImageRequirements) -> tuple[str, str] | None:
    """Return why pip cannot install a line in the image, and the remedy."""
    runtime, version = requirements.runtime, _LOCAL_VERSION.match(line.text)
    if line.is_local and runtime.script and not re.search(r"file:|(?:^|\s)/", line.text):
        return None  # the Dockerfile may copy it to there
    subjects = (line.name, line.url or "", line.text)
    for pattern, (what, remedy) in _RULES.items():
        if any(re.fullmatch(pattern, each, re.IGNORECASE) for each in subjects):
            return f"{_shown(line)} {what}", remedy
    if line.is_local:
        remedy = "install it from an index or a URL, or copy it in your own image.dockerfile"
        return f"{_shown(line)} {_LOCAL}", remedy
    tool = _VERSION_CONTROL.search(line.text)
    if tool and not runtime.has("git") and tool[1] not in runtime.script:  # or none of them
        base = runtime.set_base(f"python:3.{runtime.python[1] if runtime.python else 12}")
        return f"{_shown(line)} needs {tool[1]}, which {runtime.base} does not have", base
    options = "".join(each.text for each in requirements.written if not each.requirement)
    options += runtime.script
    if version and not _INDEX.search(options + pip_secrets([]).get(VARIABLES, "")):
        remedy = f"add a line --extra-index-url URL, or write {line.name}=={version[1]}"
        return f"{_shown(line)} is not on PyPI, which has no versions with '+'", remedy
    return _wheel_obstacle(line, runtime) or _python_obstacle(line, runtime)


def _wheel_obstacle(line: RequirementLine, runtime: ImageRuntime) -> tuple[str, str] | None:
    """Return why a URL's wheel is not for the image's Python on Linux."""
    path = re.split("[#?]", line.url or "", maxsplit=1)[0]
    try:
        tags = parse_wheel_filename(unquote(path.rpartition("/")[2]))[3]
    except InvalidWheelFilename:
        return None
    libc = "musllinux" if "alpine" in (runtime.base or "") else "manylinux"
    linux = [each for each in tags if re.fullmatch(rf"any|({libc}|linux)\w*_x86_64", each.platform)]
    if runtime.python and linux:
        name, platforms = f"cp3{runtime.python[1]}", [each.platform for each in linux]
        supported = {*cpython_tags(runtime.python, [name], platforms)}
        supported |= {*compatible_tags(runtime.python, name, platforms)}
        linux = [each for each in linux if each in supported]
    if linux:
        return None
    which = f"Linux on x86_64 and Python 3.{runtime.python[1] if runtime.python else 'N'}"
    return f"{_shown(line)} is a wheel for another system or Python", f"name one for {which}"


def _unknown_builds(line: RequirementLine, runtime: ImageRuntime) -> tuple[str, str] | None:
    """Return that it is not known whether another TensorFlow than the one here has a build."""
    specifier = line.requirement.specifier if line.requirement else None
    installed = _distribution(line.name) or _distribution("tensorflow-cpu")
    is_here = installed is None or not specifier or specifier.contains(installed.version)
    if is_here or not runtime.python or line.name not in _TENSORFLOWS_FOR_LINUX:
        return None
    version = f"3.{runtime.python[1]}"
    what = f"not verified that {_shown(line)} has a build for Python {version}: not installed here"
    system = f"--platform=manylinux_2_17_x86_64 --python-version={version}"
    command = f"pip download --no-deps --only-binary=:all: {system}"
    return what, f"try {command} '{line.text}'"


def _python_obstacle(line: RequirementLine, runtime: ImageRuntime) -> tuple[str, str] | None:
    """Return why a version is not for the image's Python, if it is the one installed here."""
    is_tensorflow, installed = line.name in _TENSORFLOW, _distribution(line.name)
    minor = runtime.python[1] if runtime.python else 12
    if is_tensorflow and "alpine" in (runtime.base or ""):
        what = f"{line.name} has no build for musl, the C library of {runtime.base}"
        return what, runtime.set_base(f"python:3.{minor}-slim")
    specifier = line.requirement.specifier if line.requirement else ""
    if not (installed and runtime.python and str(specifier) == f"=={installed.version}"):
        return None
    requires = "".join(installed.metadata.get_all("Requires-Python") or [])
    minors = [each for each in range(6, 40) if f"3.{each}.99" in SpecifierSet(requires)]
    needs = f"requires Python {requires}"
    if is_tensorflow:  # which has no source, and a wheel for each Python that it names
        named = installed.metadata.get_all("Classifier") or []
        minors = [each for each in minors if f"{_CLASSIFIER}{each}" in named]
        needs = f"has builds for 3.{min(minors, default=0)}-3.{max(minors, default=0)}"
    if not minors or minor in minors:
        return None
    nearest = min(minors, key=lambda each: abs(each - minor))
    name = re.split(r"[^\w.-]", line.text, maxsplit=1)[0]  # as the user knows it
    what = f"{runtime.base} has Python 3.{minor}, and {name} {installed.version} {needs}"
    return what, runtime.set_base(f"python:3.{nearest}{'' if runtime.has('git') else '-slim'}")


def _shown(line: RequirementLine) -> str:
    """Return a line for a message, without tokens."""
    return repr(_LOGIN.sub("//…@", line.text)[:80])


def _is_pinned(line: RequirementLine) -> bool:
    if url := line.url:
        return not url.startswith("git+") or _COMMIT.search(url) is not None
    bounds = ("==", "===", "~=", "<", "<=")
    specifiers = line.requirement.specifier if line.requirement else ()
    return any(each.operator in bounds for each in specifiers)


def providers(module: str) -> tuple[str, ...]:
    """Return the distributions that provide a module, by name; the most common one first."""
    parts = [_API_VERSION.sub("", part) for part in module.split(".")]
    length = 1
    if parts[0] == "google":
        length = 3 if parts[1:2] == ["cloud"] else 2
    name = ".".join(parts[:length])
    return _ALIASES.get(name, (canonicalize_name(name),))


def _installed_providers(module: str) -> set[str]:
    """Return the installed distributions that provide a module."""
    top = module.partition(".")[0]
    names = set(_TOP_LEVELS().get(top, ()))
    if len(names) > 1:  # a namespace package, e.g. google
        names = {name for name in names if _has_module(name, module)}
    return set(map(canonicalize_name, names))


def _is_installed(name: str, specifier: SpecifierSet | None = None) -> bool:
    """Return whether a distribution, or its build of TensorFlow, is installed in such a version."""
    installed = _distribution(name)
    if installed is None:
        return name.startswith(_CUDA_LIBRARIES)
    return specifier is None or specifier.contains(installed.version, prereleases=True)


@cache
def _distribution(name: str) -> importlib.metadata.Distribution | None:
    """Return an installed distribution, any build of TensorFlow for another one."""
    names = (name, *_TENSORFLOW) if name in _TENSORFLOW else (name,)
    distributions = (each for name in names for each in importlib.metadata.distributions(name=name))
    return next(distributions, None)


def _has_module(name: str, module: str) -> bool:
    path = module.replace(".", "/")
    files = importlib.metadata.files(name) or ()
    return any(str(file).startswith((f"{path}/__init__.", f"{path}.")) for file in files)


def pin(name: str, suffix: str = "") -> str:
    """Return a pinned requirement, in the installed version if there is one."""
    if installed := _distribution(name):
        return f"{name}=={installed.version}{suffix}"
    return f"{name}==VERSION{suffix} ('pip index versions {name}' lists the versions)"
