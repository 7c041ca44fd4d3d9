"""Rules for the requirements of a project: readable, pinned, not contradictory.

What a distribution provides and requires is read from the metadata of the packages that are
installed beside distlaunch, where ``distlaunch local`` runs. Nothing is known of other packages.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.image_runtime import tensorflow_tag
from distlaunch.errors import ImageError
from distlaunch.image.requirements import has_gpus, read_requirements
from distlaunch.job.model import DEFAULT_REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import ImageRuntime
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
_CUDA_LIBRARIES = "nvidia-"  # of tensorflow[and-cuda]; they require only each other


@dataclass(frozen=True)
class ImageRequirements:
    """The requirements that pip installs into an image.

    `lines` are requirements and URLs without those for another Python or system, `unreadable` the
    lines that pip refuses. `refusal` is why the files cannot be read, None if they can.
    """

    runtime: ImageRuntime
    file: str = DEFAULT_REQUIREMENTS
    lines: tuple[RequirementLine, ...] = ()
    unreadable: tuple[RequirementLine, ...] = ()
    refusal: str | None = None

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
        from packaging.requirements import Requirement

        in_base = {"tensorflow", "tensorboard"} if tensorflow_tag(self.runtime.base) else set()
        pending = [each.requirement for each in self.installed if each.requirement]
        pending += map(Requirement, (self.names | in_base) - {""})
        done: set[tuple[str, str]] = set()
        while pending:
            requirement = pending.pop()
            name = _canonical(requirement.name)
            for extra in ("", *requirement.extras):
                distribution = None if (name, extra) in done else _distribution(name)
                done.add((name, extra))
                required = map(Requirement, (distribution and distribution.requires) or ())
                markers = {**self.runtime.markers, "extra": extra}
                pending += (each for each in required if _applies(each, markers))
        return _IN_BASE | {name for name, _ in done}

    @cached_property
    def unverified(self) -> list[str]:
        """The requirements whose modules are not known, as they are not installed here."""
        names = [each.text for each in self.unreadable]
        for each in self.installed:
            specifier = each.requirement.specifier if each.requirement else None
            if specifier is None or not _is_installed(each.name, specifier):
                names.append(each.name or each.text)
        dependencies = sorted(self.distributions - self.names - _IN_BASE)
        return names + [name for name in dependencies if not _is_installed(name)]

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
        return ImageRequirements(runtime)
    gpu = runtime.own.made_for_gpus if runtime.own else has_gpus(job.cluster)
    try:
        lines = tuple(read_requirements(folder, file, gpu=gpu).lines())
    except ImageError as refusal:
        return ImageRequirements(runtime, file, refusal=str(refusal))
    return ImageRequirements(
        runtime,
        file,
        tuple(
            each
            for each in lines
            if each.is_url or (each.requirement and _applies(each.requirement, runtime.markers))
        ),
        tuple(each for each in lines if not each.is_readable),
    )


def problems(requirements: ImageRequirements) -> Iterator[Problem]:
    """Yield problems of the lines, each by itself and together."""
    if requirements.refusal:
        location, _, reason = requirements.refusal.partition(": ")
        what, _, remedy = reason.partition("; ")
        yield error("requirement-unreadable", location, what, remedy or "fix or remove it")
    yield from map(_unreadable, requirements.unreadable)
    yield from _clashes(requirements)
    pinned = {each.name for each in requirements.lines if _is_pinned(each)}
    for each in requirements.installed:
        if each.name and each.name not in pinned:
            what = f"{each.name} has no upper bound, so the next build may get another version"
            remedy = f"pin it, e.g. {pin(each.name)}"
            yield warning("requirement-unpinned", each.location, what, remedy)


def any_version(specifiers: Iterable[SpecifierSet | str]) -> bool:
    """Return whether a version can be in all of some sets.

    A set of versions between bounds that is not empty contains one of the bounds or the version
    right after one, or has no lower bound.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        both = SpecifierSet(",".join(filter(None, map(str, specifiers))))
        bounds = [Version(each.version.removesuffix(".*")) for each in both]
    except (InvalidSpecifier, InvalidVersion):  # e.g. ===1.0-anything
        return True
    next_versions = [Version(f"{bound.base_version}.0.0.0.1") for bound in bounds]
    versions = [Version("0"), *bounds, *next_versions]
    return any(both.contains(each, prereleases=True) for each in versions)


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
    text = _LOGIN.sub("//…@", line.text)[:80]
    return error("requirement-unreadable", line.location, f"pip cannot read {text!r}", remedy)


def _applies(requirement: Requirement, markers: Mapping[str, str]) -> bool:
    """Return whether a requirement is for the image's Python and system."""
    try:
        return requirement.marker is None or requirement.marker.evaluate(dict(markers))
    except ValueError:
        return True


def _is_pinned(line: RequirementLine) -> bool:
    url = line.text if line.is_url else line.requirement.url if line.requirement else None
    if url:
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
    return _ALIASES.get(name, (_canonical(name),))


def _installed_providers(module: str) -> set[str]:
    """Return the installed distributions that provide a module."""
    top = module.partition(".")[0]
    names = set(_TOP_LEVELS().get(top, ()))
    if len(names) > 1:  # a namespace package, e.g. google
        names = {name for name in names if _has_module(name, module)}
    return set(map(_canonical, names))


def _is_installed(name: str, specifier: SpecifierSet | None = None) -> bool:
    """Return whether a distribution, or its build of TensorFlow, is installed in such a version."""
    distribution = _distribution(name)
    if distribution is None:
        return name.startswith(_CUDA_LIBRARIES)
    return specifier is None or specifier.contains(distribution.version, prereleases=True)


@cache
def _distribution(name: str) -> importlib.metadata.Distribution | None:
    names = (name, *_TENSORFLOW) if name in _TENSORFLOW else (name,)
    distributions = (each for name in names for each in importlib.metadata.distributions(name=name))
    return next(distributions, None)


def _has_module(name: str, module: str) -> bool:
    path = module.replace(".", "/")
    files = importlib.metadata.files(name) or ()
    return any(str(file).startswith((f"{path}/__init__.", f"{path}.")) for file in files)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pin(name: str, suffix: str = "") -> str:
    """Return a pinned requirement, in the installed version if there is one."""
    distribution = _distribution(name)
    if distribution:
        return f"{name}=={distribution.version}{suffix}"
    return f"{name}==VERSION{suffix} ('pip index versions {name}' lists the versions)"
