"""Find the modules in a project's files, as Python does in the image."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_PACKAGE = "__init__.py"
_COMPILED = (".so", ".pyd")


@dataclass(frozen=True, slots=True)
class Module:
    """A module; `file` is None for compiled code and a folder without ``__init__.py``."""

    name: str
    file: str | None
    is_package: bool

    @property
    def package(self) -> str:
        """The package that its relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


class Modules:
    """The modules of a project.

    Parameters
    ----------
    files
        Paths, posix and relative to the folder that the program is started in.
    roots
        The folders in which modules are searched, in this order; ``""`` is that folder itself.
    """

    def __init__(self, files: Collection[str], roots: Iterable[str] = ("",)) -> None:
        self.python = frozenset(path for path in files if path.endswith(".py"))
        compiled = [path for path in files if path.endswith(_COMPILED)]
        self._compiled = frozenset(path.partition(".")[0] for path in compiled)
        self._folders = frozenset(
            path[:end]
            for path in [*self.python, *compiled]
            for end, letter in enumerate(path)
            if letter == "/"
        )
        self._roots = tuple(roots)

    def find(self, name: str) -> Module | None:
        """Return the module of a name, None if the project does not have it."""
        paths = [posixpath.join(root, name.replace(".", "/")) for root in self._roots]
        for path in paths:
            if f"{path}/{_PACKAGE}" in self.python:
                return Module(name, f"{path}/{_PACKAGE}", is_package=True)
            if f"{path}.py" in self.python:
                return Module(name, f"{path}.py", is_package=False)
            if path in self._compiled:
                return Module(name, None, is_package=False)
        is_folder = any(path in self._folders for path in paths)
        return Module(name, None, is_package=True) if is_folder else None

    def has_any(self, name: str) -> bool:
        """Return whether a folder or file anywhere in the project has a module's first name."""
        top = name.partition(".")[0]
        return any(top in path.removesuffix(".py").split("/") for path in self.python)

    def below(self, name: str) -> list[str]:
        """Return the names of the modules in a package; ``""`` is the top level."""
        prefixes = {
            posixpath.join(root, name.replace(".", "/"), "").lstrip("/") for root in self._roots
        }
        names = {
            path[len(prefix) :].partition("/")[0].removesuffix(".py")
            for path in self.python
            for prefix in prefixes
            if path.startswith(prefix)
        }
        return sorted(names - {"__init__", "__main__"})

    def name_of(self, file: str) -> str:
        """Return the name by which a Python file is imported."""
        prefixes = [posixpath.join(root, "") for root in self._roots]
        prefix = max((each for each in prefixes if file.startswith(each)), key=len)
        path = file.removeprefix(prefix).removesuffix(".py").removesuffix("/__init__")
        return path.replace("/", ".")


def absolute_name(package: str, module: str, level: int) -> str | None:
    """Return the full name of a module, None if its dots lead out of the package."""
    if not level:
        return module
    parts = package.split(".") if package else []
    if len(parts) < level:
        return None
    return ".".join([*parts[: len(parts) - level + 1], *([module] if module else [])])
