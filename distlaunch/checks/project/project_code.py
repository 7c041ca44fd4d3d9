"""A project's code in its image: which files the program imports, and what pip installs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from distlaunch.checks.project import installed
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
    """The Python files of a project in its image: `files` are paths relative to `folder`.

    `starts` are the modules that the program always imports.
    """

    folder: Path
    files: Collection[str]
    starts: tuple[str, ...]
    requirements: ImageRequirements
    runtime: ImageRuntime

    @cached_property
    def modules(self) -> dict[str, str | None]:
        """The files of all modules by name, None for a folder without ``__init__.py``."""
        modules: dict[str, str | None] = {}
        for path in sorted(self.files):
            if path.endswith((".py", ".so")):
                name = path.partition(".")[0].removesuffix("/__init__").replace("/", ".")
                modules[name] = path
                while name := name.rpartition(".")[0]:
                    modules.setdefault(name, None)
        return modules

    @cached_property
    def sources(self) -> dict[str, Source]:
        """All Python files, parsed as the image's Python does, but not as a newer one."""
        python = self.runtime.python
        older = python if python and python < sys.version_info[:2] else None
        paths = sorted(path for path in self.files if path.endswith(".py"))
        return {path: read_source(self.text(path), older) for path in paths}

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
        return changes_path or self.runtime.own is not None

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

    def is_package(self, name: str) -> bool:
        """Return whether a module is a folder."""
        path = self.modules[name]
        return path is None or path.endswith("/__init__.py")

    def is_namespace(self, name: str) -> bool:
        """Return whether a module is a package that defines nothing itself."""
        path = self.modules[name]
        return path is None or (self.is_package(name) and self.sources[path].is_empty)

    def _reachable(self, *, only_required: bool) -> set[str]:
        pending, reached, files = list(self.starts), set[str](), set[str]()
        while pending:
            name = pending.pop()
            path = self.modules.get(name)
            if not name or name in reached:
                continue
            reached.add(name)
            pending.append(name.rpartition(".")[0])
            if path in self.sources:
                files.add(path)
                for each in self.sources[path].imports:
                    target = each.absolute_name(path)
                    if target and (each.is_required or not only_required):
                        pending += [target, f"{target}.{each.name}"]
        return files
