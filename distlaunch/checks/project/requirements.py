"""Rules for the requirements of a project: readable, pinned, not contradictory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.installed import pin
from distlaunch.errors import ImageError
from distlaunch.image.requirements import has_gpus, read_requirements
from distlaunch.render.templates import REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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


@dataclass(frozen=True, slots=True)
class ImageRequirements:
    """The requirements that pip installs into the image.

    `lines` are requirements and URLs without those for another Python or system, `unreadable` the
    lines that pip refuses. `refusal` is why the files cannot be read, None if they can.
    """

    file: str = REQUIREMENTS
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


def load_requirements(job: Job, folder: Path, runtime: ImageRuntime) -> ImageRequirements:
    """Read the requirements of a job."""
    name = runtime.requirements or job.image.requirements
    if name is None and not (folder / REQUIREMENTS).is_file():
        return ImageRequirements()
    file = name or REQUIREMENTS
    gpu = runtime.own.made_for_gpus if runtime.own else has_gpus(job.cluster)
    try:
        lines = tuple(read_requirements(folder, file, gpu=gpu).lines())
    except ImageError as refusal:
        return ImageRequirements(file, refusal=str(refusal))
    return ImageRequirements(
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
            yield warning(
                "requirement-unpinned",
                each.location,
                f"{each.name} has no upper bound, so the next build may get another version",
                f"pin it, e.g. {pin(each.name)}",
            )


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
            remedy = f"write one range only (the other is at {', '.join(others)})"
            yield error(
                "requirement-clash",
                last,
                f"no version is {wanted}",
                remedy if others else "write a range that has versions",
            )


def _unreadable(line: RequirementLine) -> Problem:
    remedy = "expected a requirement, e.g. numpy==2.3.1"
    if _ONE_EQUALS.fullmatch(line.text):
        name, _, version = line.text.partition("=")
        remedy = f"write {name.strip()}=={version.strip().partition('=')[0]}"
    text = _LOGIN.sub("//…@", line.text)[:80]
    return error("requirement-unreadable", line.location, f"pip cannot read {text!r}", remedy)


def _applies(requirement: Requirement, markers: dict[str, str]) -> bool:
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
