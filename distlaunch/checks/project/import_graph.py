"""What a program comes to import: the project's files that it reaches, and what it lacks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from distlaunch.checks.project.modules import absolute, package_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distlaunch.checks.project.modules import Module, Modules
    from distlaunch.checks.project.source import Import, Source


@dataclass(frozen=True, slots=True)
class Wanted:
    """A module that the project's files do not have, and are asked for.

    Parameters
    ----------
    file, line
        Who asks.
    name
        The module, dotted, as far as it is known to be one.
    taken
        The name that is taken from it, None without one.
    is_sure
        Whether the program always asks for it.
    kind
        ``foreign`` for a module of others, ``module`` for one below a package of the project's own,
        ``name`` for a name that its module lacks, ``above`` for dots that lead out of the package.
    """

    file: str
    line: int
    name: str
    taken: str | None
    is_sure: bool
    kind: Literal["foreign", "module", "name", "above"]

    @property
    def where(self) -> str:
        """The place of the import."""
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Reach:
    """What a program reaches.

    Parameters
    ----------
    files
        The project's files that it imports, each with whether it always does.
    wanted
        What these ask for that the project has not.
    """

    files: dict[str, bool] = field(default_factory=dict)
    wanted: list[Wanted] = field(default_factory=list)


def reach(
    modules: Modules,
    read: Callable[[str], Source],
    start: Iterable[str],
    *,
    is_known: Callable[[str], bool] = lambda _: False,
) -> Reach:
    """Follow imports from where a program starts.

    Parameters
    ----------
    modules
        The project's.
    read
        Gives what a file says of itself.
    start
        The modules that the program imports first, by name.
    is_known
        Whether a file's imports are not to be looked at.
    """
    walk = _Walk(modules, read)
    for name in start:
        walk.enter(name, is_sure=True)
    while file := walk.next():
        if not is_known(file):
            walk.follow(file)
    return walk.found


class _Walk:
    """Goes through files, first through those that the program is sure to import."""

    def __init__(self, modules: Modules, read: Callable[[str], Source]) -> None:
        self.found = Reach()
        self._modules = modules
        self._read = read
        self._names: dict[str, Module] = {}
        self._sure: deque[Module] = deque()
        self._unsure: deque[Module] = deque()

    def next(self) -> str | None:
        """Return a file that was not followed yet."""
        while self._sure or self._unsure:
            is_sure = bool(self._sure)
            module = (self._sure or self._unsure).popleft()
            if module.file and module.file not in self.found.files:
                self.found.files[module.file] = is_sure
                self._names[module.file] = module
                return module.file
        return None

    def enter(self, name: str, *, is_sure: bool) -> Module | None:
        """Import a module with the packages above it; return it if the project has it."""
        module = None
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            module = self._modules.find(".".join(parts[:length]))
            if module is None:
                return None
            (self._sure if is_sure else self._unsure).append(module)
        return module

    def follow(self, file: str) -> None:
        """Import what a file imports."""
        module, is_sure = self._names[file], self.found.files[file]
        package = package_of(module.name, is_package=module.is_package)
        for each in self._read(file).imports:
            self._follow(file, package, each, is_sure=is_sure and each.need == "always")

    def _follow(self, file: str, package: str, each: Import, *, is_sure: bool) -> None:
        name = absolute(package, each.module, each.level)
        kind: Literal["foreign", "module", "name", "above"] | None = None
        if name is None:
            kind = "above"
        elif not each.level and self._modules.find(name.partition(".")[0]) is None:
            kind = "foreign"
        else:
            module = self.enter(name, is_sure=is_sure)
            if module is None:
                kind = "module"
            elif each.name and not self._has(module, each.name, is_sure=is_sure):
                kind = "name"
        if kind and each.need != "optional":
            shown = name or "." * each.level + each.module
            self.found.wanted.append(Wanted(file, each.line, shown, each.name, is_sure, kind))

    def _has(self, module: Module, name: str, *, is_sure: bool) -> bool:
        """Whether a name can be taken from a module: one below it, or one that it binds."""
        if module.is_package and self.enter(f"{module.name}.{name}", is_sure=is_sure):
            return True
        if module.file is None:
            return not module.is_package  # of compiled code nothing is known
        names = self._read(module.file).names
        return names is None or name in names or name.startswith("__")
