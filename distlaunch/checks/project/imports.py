"""What a program imports and will not find in its image."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.checks.problem import error, warning
from distlaunch.checks.project.distributions import (
    canonical,
    closure,
    is_standard,
    providers,
    removed_in,
)
from distlaunch.checks.project.requirements import NAME, pin, where_versions_are
from distlaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from distlaunch.checks.problem import Problem
    from distlaunch.checks.project.image_runtime import Surroundings
    from distlaunch.checks.project.import_graph import Wanted
    from distlaunch.checks.project.modules import Modules
    from distlaunch.checks.project.requirements import Requirements

_WITHOUT_SETUPTOOLS = (3, 12)  # Python's own images from this version on
_IN_TENSORFLOWS_IMAGE = ("pip", "tensorflow", "tensorboard", "setuptools", "wheel")


@dataclass(frozen=True, slots=True)
class Found:
    """Where modules are looked for.

    Parameters
    ----------
    folder
        The project's, with files that are not in its image, too.
    modules
        Those of the image.
    requirements
        What pip installs.
    around
        What else there is.
    """

    folder: Path
    modules: Modules
    requirements: Requirements
    around: Surroundings


def problems(wanted: Iterable[Wanted], found: Found) -> Iterator[Problem]:
    """Yield what is asked for and not there, each once, at a place where that is sure if any is."""
    told: set[str] = set()
    for each in sorted(wanted, key=lambda each: not each.is_sure):
        problem = _problem(each, found)
        if problem and problem.what not in told:
            told.add(problem.what)
            yield problem


def _problem(each: Wanted, found: Found) -> Problem | None:
    match each.kind:
        case "foreign":
            return _foreign(each, found)
        case "above":
            return _tell(
                each,
                found,
                f"{each.name!r} leads out of the package",
                "name the module from the project's folder on, as trainer.data",
            )
        case "module":
            package, _, last = each.name.rpartition(".")
            return _left_out(each, found, each.name) or _tell(
                each,
                found,
                f"there is no module {each.name}",
                _nearest(last, found.modules.below(package)),
            )
        case _:
            near = found.modules.below(each.name)
            return _left_out(each, found, f"{each.name}.{each.taken}") or _tell(
                each,
                found,
                f"{each.name} has no {each.taken!r}",
                _nearest(each.taken or "", near),
            )


def _foreign(each: Wanted, found: Found) -> Problem | None:
    python = found.around.python
    full = f"{each.name}.{each.taken}" if each.taken else each.name
    if is_standard(each.name, python) or _is_covered(full, found):
        return None
    left_out = _left_out(each, found, each.name)
    if left_out:
        return left_out
    top = each.name.partition(".")[0]
    if top == "distlaunch":
        return _tell(
            each,
            found,
            "the image holds nothing of distlaunch, which stays on the machine that submits",
            "do without it, and copy what the program needs of it into the project",
        )
    beside = posixpath.join(posixpath.dirname(each.file), f"{top}.py")
    if beside in found.modules.python:
        package = found.modules.name_of(beside).rpartition(".")[0]
        return _tell(
            each,
            found,
            f"there is no module {top} where the program is started",
            f"write 'from {package} import {top}'",
        )
    gone = removed_in(top)
    if gone and python and python >= gone and "setuptools" not in providers(top):
        what = f"Python {python[0]}.{python[1]} has no {top} any more"
        return _tell(each, found, what, "do without it, or name an older image.base")
    return _uncovered(each, providers(full)[0], found)


def _uncovered(each: Wanted, likely: str, found: Found) -> Problem | None:
    """Return the problem of a module that no requirement brings, where that is known."""
    around = found.around
    if not around.is_plain and (around.own_dockerfile or not around.tensorflow_tag):
        return None  # nobody knows what such an image has
    if not found.requirements.is_read:
        return None  # or what such a file would say
    file = found.requirements.name or NAME
    is_known = closure(filter(None, found.requirements.names))[1] and all(found.requirements.names)
    what = f"nothing that pip installs brings {each.name.partition('.')[0]}"
    if each.name.startswith("google."):
        what = f"nothing that pip installs brings {likely}"
    remedy = f"add {pin(likely)} to {file}{where_versions_are(likely)}"
    is_sure = is_known and around.is_plain and not found.requirements.problems
    return _tell(each, found, what, remedy, is_sure=is_sure)


def _is_covered(module: str, found: Found) -> bool:
    """Whether a requirement brings a module, or may well do."""
    installed = [*filter(None, found.requirements.names), *found.requirements.meant]
    brought, _ = closure([*installed, *_in_base(found.around)])
    top = canonical(module.partition(".")[0])
    if brought.intersection(providers(module)) or top in brought:
        return True
    unknown = [name for name in found.requirements.names if name and not closure([name])[1]]
    return any(_share(top, name) for name in unknown)


def _in_base(around: Surroundings) -> tuple[str, ...]:
    """Return what images have that begin with Python's or TensorFlow's."""
    if around.tensorflow_tag:
        return _IN_TENSORFLOWS_IMAGE
    has_setuptools = around.python is None or around.python < _WITHOUT_SETUPTOOLS
    return ("pip", "setuptools", "wheel") if has_setuptools else ("pip",)


def _share(top: str, name: str) -> bool:
    """Whether a distribution that nothing is known of is called like a module."""
    is_within = top.replace("-", "") in name.replace("-", "")
    return is_within or name.partition("-")[0] == top.partition("-")[0]


def _left_out(each: Wanted, found: Found, name: str) -> Problem | None:
    """Return the problem of a module that lies in the project's folder but not in its image."""
    for root in found.around.roots:
        path = posixpath.join(root, name.replace(".", "/"))
        for candidate in (f"{path}.py", f"{path}/__init__.py", path):
            if not _is_module(found.folder, candidate):
                continue
            remedy = f"add {_whole(candidate)} to image.include in distlaunch.yaml"
            if found.around.own_ignore:
                remedy = f"let {candidate} in in .dockerignore"
            make = error if each.is_sure else warning
            shown = candidate.removesuffix("/__init__.py")
            what = f"{shown} is in the project, but not in its image"
            return make("module-not-in-image", each.where, what, remedy)
    return None


def _is_module(folder: Path, candidate: str) -> bool:
    path = folder / candidate
    return path.is_file() if candidate.endswith(".py") else any(path.glob("*.py"))


def _whole(path: str) -> str:
    """Return what of a path lies right in the project's folder."""
    return path.partition("/")[0]


def _nearest(name: str, known: list[str]) -> str:
    near = did_you_mean(name, known).removeprefix("; ")
    return near or "write it, or mend the import"


def _tell(each: Wanted, found: Found, what: str, remedy: str, *, is_sure: bool = True) -> Problem:
    is_sure &= each.is_sure and not found.around.looks_elsewhere
    make = error if is_sure else warning
    return make("import-missing", each.where, what, remedy)
