"""Which modules a project's files are to Python, as it looks for them from the image's folder."""

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
    """A module that lies in the project.

    Parameters
    ----------
    name
        As it is imported.
    file
        Its Python file, None where it has none: a folder, or compiled code.
    is_package
        Whether it can have modules below it.
    """

    name: str
    file: str | None
    is_package: bool


class Modules:
    """The modules among some files.

    Parameters
    ----------
    files
        Paths, posix and relative to the folder that the program is started in.
    roots
        Where modules are looked for, in this order; ``""`` is that folder itself.
    """

    def __init__(self, files: Collection[str], roots: Iterable[str] = ("",)) -> None:
        self.python = frozenset(path for path in files if path.endswith(".py"))
        compiled = [path for path in files if path.endswith(_COMPILED)]
        self._compiled = frozenset(path.partition(".")[0] for path in compiled)
        self._folders = frozenset(_folders([*self.python, *compiled]))
        self._roots = tuple(roots)

    def find(self, name: str) -> Module | None:
        """Return the module of a name, None where the project has none."""
        below = name.replace(".", "/")
        paths = [posixpath.join(root, below) for root in self._roots]
        for path in paths:
            if f"{path}/{_PACKAGE}" in self.python:
                return Module(name, f"{path}/{_PACKAGE}", is_package=True)
            if f"{path}.py" in self.python:
                return Module(name, f"{path}.py", is_package=False)
            if path in self._compiled:
                return Module(name, None, is_package=False)
        if any(path in self._folders for path in paths):
            return Module(name, None, is_package=True)
        return None

    def has_any(self, name: str) -> bool:
        """Whether a folder or a file anywhere in the project is called like a module's first."""
        top = name.partition(".")[0]
        return any(top in path.removesuffix(".py").split("/") for path in self.python)

    def below(self, name: str) -> list[str]:
        """Return the names of the modules right below a package; of all at the top for ``""``."""
        below = name.replace(".", "/")
        prefixes = {posixpath.join(root, below, "").lstrip("/") for root in self._roots}
        found = {
            path[len(prefix) :].partition("/")[0].removesuffix(".py")
            for path in self.python
            for prefix in prefixes
            if path.startswith(prefix)
        }
        return sorted(found - {"__init__", "__main__"})

    def name_of(self, file: str) -> str:
        """Return the name by which a Python file is imported."""
        prefixes = [posixpath.join(root, "") for root in self._roots]
        prefix = max((each for each in prefixes if file.startswith(each)), key=len)
        path = file.removeprefix(prefix).removesuffix(".py").removesuffix("/__init__")
        return path.replace("/", ".")


def package_of(name: str, *, is_package: bool) -> str:
    """Return the package that a module's relative imports begin at."""
    return name if is_package else name.rpartition(".")[0]


def absolute(package: str, module: str, level: int) -> str | None:
    """Return a module's name without dots before it, None where these lead out of the package."""
    if not level:
        return module
    parts = package.split(".") if package else []
    kept = parts[: len(parts) - level + 1]
    if not kept or len(parts) < level:
        return None
    return ".".join([*kept, *([module] if module else [])])


def _folders(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        folder = posixpath.dirname(path)
        while folder and folder not in found:
            found.add(folder)
            folder = posixpath.dirname(folder)
    return found
