"""Rules for the requirements of a project: readable, pinned, in reach of a build; uv resolves them.

What a distribution provides and requires is read from the metadata of the packages that are
installed beside distlaunch, where ``distlaunch local`` runs. Nothing is known of other packages.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import time
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.image_runtime import tensorflow_tag
from distlaunch.errors import ImageError
from distlaunch.image import uv
from distlaunch.image.pip_secrets import variable_refusals
from distlaunch.image.requirements import EXPORTS, applies, find_unread, read_requirements
from distlaunch.image.uv import ImagePython, Resolution
from distlaunch.job.model import DEFAULT_BASE, DEFAULT_REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from packaging.specifiers import SpecifierSet

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.errors import Diagnostic
    from distlaunch.image.requirements import RequirementLine
    from distlaunch.job.model import Job

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
# What is wrong and the remedy, by a pattern of a URL or a line; the first counts.
_LOCAL = "is only on this machine"
_RULES = {
    r"\S+\s*@\s*(?:file:|\.{0,2}/).*": (
        _LOCAL,
        "write NAME==VERSION, as 'pip list --format=freeze' prints it",
    ),
    r"(?:-e\s*)?\./?(?:\[.*\])?": (_LOCAL, "remove it: the image has the module's folder"),
    r"\w+\+ssh:.*|(git\+)?git@.*": ("needs SSH keys, and a build has none", "write git+https://…"),
}
_VERSION_CONTROL = re.compile(r"\b(git|hg|svn)\+")  # of the full images of Python
# Of Debian 12, which is older than that of the images that `python:3.N` names now.
_GLIBC = 36
_RESOLVE_TIMEOUT = 15.0  # seconds
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
    pinned = {each.name for each in requirements.lines if _is_pinned(each)}
    for each in requirements.installed:
        if each.name and each.name not in pinned:
            what = f"{each.name} has no upper bound, so the next build may get another version"
            remedy = f"pin it, e.g. {pin(each.name)}"
            yield warning("requirement-unpinned", each.location, what, remedy)
    for each in requirements.written:
        if not each.is_constraint and (obstacle := _obstacle(each, requirements.runtime)):
            make = warning if requirements.runtime.script else error  # its author may see to it
            yield make("requirement-unavailable", each.location, *obstacle)
    if not requirements.runtime.script:
        for refused in variable_refusals(
            (each.location, each.text) for each in requirements.written
        ):
            yield error("requirement-unavailable", refused.where, refused.what, refused.remedy)


def resolve(requirements: ImageRequirements) -> tuple[list[Problem], str]:
    """Return which lines have no versions for the image's Python, and the result for the plan.

    A line that uv names is left out to find the next one.
    """
    runtime, lines = requirements.runtime, [*requirements.written]
    if runtime.python is None:
        return [], f"not resolved: the Python of {runtime.base} is not known"
    if [*variable_refusals((each.location, each.text) for each in lines)]:
        return [], "not resolved: variables are missing"
    if os.environ.get("UV_OFFLINE"):  # uv would report that no index has the packages
        return [], "not resolved: UV_OFFLINE is set"
    glibc = None if "alpine" in (runtime.base or "") else _GLIBC
    python = ImagePython(f"3.{runtime.python[1]}", glibc)
    problems: list[Problem] = []
    end = time.monotonic() + _RESOLVE_TIMEOUT
    while (found := uv.resolve(lines, python, end - time.monotonic())).is_refused:
        line = _first_named(requirements.lines, found.reason)
        problems.append(_no_versions(line.location if line else requirements.file, found))
        if line not in lines:
            break
        lines.remove(line)
    return problems, "not all have versions for the image" if problems else found.describe()


def _first_named(lines: Iterable[RequirementLine], reason: str) -> RequirementLine | None:
    """Return the line whose package a reason of uv names first."""
    named: dict[int, RequirementLine] = {}
    for line in lines:
        pattern = rf"(?<![\w.-]){re.escape(line.name)}(?![\w-])"
        if line.name and (match := re.search(pattern, reason)):
            named.setdefault(match.start(), line)
    return named[min(named)] if named else None


def _no_versions(where: str, found: Resolution) -> Problem:
    if found.needs_source:
        remedy = "pin a version that has wheels, or have Docker build it, in a base with a compiler"
        return warning("requirement-unavailable", where, found.reason, remedy)
    remedy = "pin versions that exist for this Python, or choose another image.base"
    return error("requirement-unavailable", where, found.reason, remedy)


def _unreadable(line: RequirementLine) -> Problem:
    remedy = "expected a requirement, e.g. numpy==2.3.1"
    if _ONE_EQUALS.fullmatch(line.text):
        name, _, version = line.text.partition("=")
        remedy = f"write {name.strip()}=={version.strip().partition('=')[0]}"
    return error("requirement-unreadable", line.location, f"pip cannot read {line.shown}", remedy)


def _obstacle(line: RequirementLine, runtime: ImageRuntime) -> tuple[str, str] | None:
    """Return why a build cannot fetch a line that is in no index, and the remedy."""
    if line.is_local and runtime.script and not re.search(r"file:|(?:^|\s)/", line.text):
        return None  # the Dockerfile may copy it to there
    for pattern, (what, remedy) in _RULES.items():
        if any(re.fullmatch(pattern, each, re.IGNORECASE) for each in (line.url or "", line.text)):
            return f"{line.shown} {what}", remedy
    if line.is_local:
        remedy = "install it from an index or a URL, or copy it in your own image.dockerfile"
        return f"{line.shown} {_LOCAL}", remedy
    tool = _VERSION_CONTROL.search(line.text)
    if tool and not runtime.has("git") and tool[1] not in runtime.script:  # or none of them
        base = runtime.set_base(f"python:3.{runtime.python[1] if runtime.python else 12}")
        return f"{line.shown} needs {tool[1]}, which {runtime.base} does not have", base
    return None


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
