"""The modules of a project, read and not run: what their names stand for, what functions give."""

from __future__ import annotations

import ast
import contextlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from distlaunch.checks.data import statements, values
from distlaunch.checks.data.expressions import Function, Module, Scope
from distlaunch.checks.data.values import Named, Unknown
from distlaunch.render.templates import CODE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from distlaunch.checks.data.values import Environment

_DEEPEST = 8  # calls of the project's own functions inside each other
_MOST_EXPRESSIONS = 20_000  # after which nothing more is known
_NO_READERS = ("logging.", "os.", "pathlib.", "posixpath.", "print", "str", "sys.", "warnings.")


class Modules:
    """The modules of a project, each read once, as it is asked for.

    Parameters
    ----------
    folder
        The project's folder.
    environment
        The variables that the program finds.
    engine_room
        The package with `Records` and `Arrays`; nothing of it is read.

    Attributes
    ----------
    acts
        Whether a statement was met that does something, such as to fetch the data: what is not
        there now may then be there when it is wanted.
    givers
        The full names of `Records` and `Arrays`.
    handed
        Paths of a home folder that something of another package is called with, and the place.
    """

    def __init__(self, folder: Path, environment: Environment, engine_room: str) -> None:
        self.acts = False
        self.handed: list[tuple[str, str]] = []
        self.environment = environment
        self.givers = (f"{engine_room}.input.Records", f"{engine_room}.input.Arrays")
        self._folder = folder
        self._engine_room = f"{engine_room}."
        self._modules: dict[str, Module | None] = {}
        self._depth = self._expressions = 0

    def read(self, name: str) -> Module | None:
        """Return a module, None where there is no such file or it cannot be read."""
        if name not in self._modules:
            self._modules[name] = None
            self._read(name)
        return self._modules[name]

    def named(self, name: str) -> Any:
        """Return what a full name stands for: of a module of the project, or of itself."""
        seen: set[str] = set()
        found: Any = Named(name)
        while isinstance(found, Named) and found.name not in seen:
            seen.add(found.name)
            found = self._entry(found.name)
        return found

    def _entry(self, name: str) -> Any:
        origin, _, last = name.rpartition(".")
        if not origin or name.startswith(self._engine_room):
            return Named(name)
        module = self.read(origin)
        return module.names.get(last, Named(name)) if module else Named(name)

    def call(self, module: Module, name: str) -> Any:
        """Return what a function gives that is called without arguments.

        Raises
        ------
        Unknown
            If that cannot be told.
        """
        function = module.names.get(name)
        if not isinstance(function, Function):
            raise Unknown
        return self.run(function, [], {})

    def run(self, function: Function, words: list[Any], named: dict[str, Any]) -> Any:
        """Return what a function of the project's own gives.

        Raises
        ------
        Unknown
            If that cannot be told.
        """
        if self._depth == _DEEPEST or function.node.decorator_list:
            raise Unknown
        self._depth += 1
        try:
            names = self._bound(function, words, named)
            given = statements.run(function.node.body, Scope(self, function.module, names))
        finally:
            self._depth -= 1
        return None if given is statements.NOTHING else given

    def hand(self, function: str, words: Iterable[Any], where: str) -> None:
        """Note what a function of another package is called with."""
        if function.startswith(_NO_READERS):
            return
        for word in words:
            if isinstance(word, (str, PurePosixPath)) and str(word).startswith(values.HOMES):
                self.handed.append((str(word), where))

    def count(self) -> None:
        """Count an expression.

        Raises
        ------
        Unknown
            If there were too many.
        """
        self._expressions += 1
        if self._expressions > _MOST_EXPRESSIONS:
            raise Unknown

    def _read(self, name: str) -> None:
        path = name.replace(".", "/")
        for file in (f"{path}.py", f"{path}/__init__.py"):
            try:
                tree = ast.parse((self._folder / file).read_bytes())
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            module = self._modules[name] = Module(name, file)
            module.names |= {"__file__": f"{CODE}/{file}", "__name__": name}
            with contextlib.suppress(Unknown, RecursionError):
                statements.run(tree.body, Scope(self, module, module.names))
            return

    def _bound(self, function: Function, words: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        """Return what a function's parameters stand for."""
        wanted = function.node.args
        positional = [each.arg for each in (*wanted.posonlyargs, *wanted.args)]
        by_name = [each.arg for each in wanted.kwonlyargs]
        outside = Scope(self, function.module, function.module.names)
        bound = dict(zip(reversed(positional), reversed(wanted.defaults), strict=False))
        given = dict(zip(by_name, wanted.kw_defaults, strict=True))
        bound |= {name: default for name, default in given.items() if default is not None}
        found = {name: outside.value_or_unknown(node) for name, node in bound.items()}
        found |= dict(zip(positional, words, strict=False)) | named
        is_more = len(words) > len(positional) or wanted.vararg or wanted.kwarg
        if is_more or found.keys() != {*positional, *by_name}:
            raise Unknown
        return found
