"""A project's code in its image: which files the program imports, and what pip installs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from distlaunch.checks.project import installed
from distlaunch.checks.project.modules import Modules, absolute_name
from distlaunch.checks.project.source import read_source

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from distlaunch.checks.project.image_runtime import ImageRuntime
    from distlaunch.checks.project.requirements import ImageRequirements
    from distlaunch.checks.project.source import Source

_BEFORE_3_12 = {"setuptools", "wheel"}  # in Python's image
_IN_TENSORFLOW_IMAGE = {"pip", "tensorflow", "tensorboard", "setuptools", "wheel"}


@dataclass(frozen=True)
class ProjectCode:
    """The Python files of a project in its image.

    Parameters
    ----------
    folder
        The project's folder, with files that are not in the image, too.
    files
        The paths of the files in the image.
    starts
        The modules that the program always imports, by name.
    requirements
        The requirements that pip installs.
    runtime
        The image.
    """

    folder: Path
    files: Collection[str]
    starts: tuple[str, ...]
    requirements: ImageRequirements
    runtime: ImageRuntime

    @cached_property
    def modules(self) -> Modules:
        return Modules(self.files, self.runtime.roots)

    @cached_property
    def sources(self) -> dict[str, Source]:
        """All Python files, parsed as the image's Python does, but not as a newer one."""
        python = self.runtime.python
        older = python if python and python < sys.version_info[:2] else None
        return {path: read_source(self.text(path), older) for path in sorted(self.modules.python)}

    @cached_property
    def required(self) -> frozenset[str]:
        """The files that the program always imports."""
        return frozenset(self._reachable(only_required=True))

    @cached_property
    def reachable(self) -> frozenset[str]:
        """The files that the program may import."""
        return frozenset(self._reachable(only_required=False))

    @cached_property
    def looks_elsewhere(self) -> bool:
        """Whether modules may be in folders that are not known here."""
        changes_path = any(self.sources[file].changes_path for file in self.reachable)
        return changes_path or self.runtime.looks_elsewhere or self.runtime.own is not None

    @cached_property
    def distributions(self) -> frozenset[str]:
        """The names of the distributions in the image, as far as they are known."""
        from packaging.requirements import Requirement

        runtime = self.runtime
        in_base = _IN_TENSORFLOW_IMAGE if runtime.tensorflow_tag else {"pip"}
        if runtime.python is None or runtime.python < (3, 12):
            in_base = in_base | _BEFORE_3_12
        installs = [each.requirement for each in self.requirements.installed if each.requirement]
        installs += map(Requirement, in_base)
        names = installed.with_dependencies(installs, runtime.markers)
        return frozenset(names | self.requirements.names)

    @cached_property
    def unverified(self) -> list[str]:
        """The requirements whose modules are not known, as they are not installed here."""
        names = [each.text for each in self.requirements.unreadable]
        for each in self.requirements.installed:
            specifier = each.requirement.specifier if each.requirement else None
            if specifier is None or not installed.is_installed(each.name, specifier):
                names.append(each.name or each.text)
        dependencies = sorted(self.distributions - self.requirements.names)
        return names + [name for name in dependencies if not installed.is_installed(name)]

    def text(self, path: str) -> bytes:
        """Return the content of a file, empty if it cannot be read."""
        try:
            return (self.folder / path).read_bytes()
        except OSError:
            return b""

    def defines_nothing(self, file: str | None) -> bool:
        """Return whether a package has no module ``__init__``, or an empty one."""
        return file is None or self.sources[file].is_empty

    def _reachable(self, *, only_required: bool) -> set[str]:
        pending, done, files = list(self.starts), set[str](), set[str]()
        while pending:
            name = pending.pop()
            if name in done:
                continue
            done.add(name)
            module = self.modules.find(name)
            pending += [name.rpartition(".")[0]] if "." in name else []
            if module and module.file and module.file not in files:
                files.add(module.file)
                for each in self.sources[module.file].imports:
                    target = absolute_name(module.package, each.module, each.level)
                    if target and (each.is_required or not only_required):
                        pending += [target, f"{target}.{each.name}"] if each.name else [target]
        return files
