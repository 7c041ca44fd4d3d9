"""The user's program: a Python file, or a module that is run as ``python -m`` does."""

from __future__ import annotations

import argparse
import ast
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

from distlaunch_trainer.errors import TrainerError

LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
"""The environment variable by which ``tf.keras`` is tf_keras (Keras 2)."""


@dataclass(frozen=True)
class Program:
    """A script that calls ``fit``, with its arguments."""

    script: str | None  # the path of a Python file, or
    module: str | None  # the name of a module
    args: tuple[str, ...]

    @classmethod
    def of(cls, options: argparse.Namespace) -> Program:
        """Return the program that the command line names."""
        if options.module:
            name, *args = options.module
            return cls(None, name, tuple(args))
        return cls(options.script, None, tuple(options.args))

    def source(self) -> str:
        """Return the program's text without importing it, "" if it cannot be read."""
        if self.script:
            paths = [Path(self.script)]
        else:
            module = Path(*self.module.split("."))
            paths = [module.with_suffix(".py"), module / "__main__.py"]
        return next((path.read_text("utf-8", "replace") for path in paths if path.is_file()), "")

    def legacy_keras(self) -> str | None:
        """Return TF_USE_LEGACY_KERAS as the program sets it, None if it does not.

        TensorFlow reads it once, before the program runs. One that imports tf_keras, and not
        Keras 3, is for it.
        """
        try:
            nodes = list(ast.walk(ast.parse(self.source())))
        except (SyntaxError, ValueError, RecursionError):
            return None  # reported when it is run
        for value in filter(None, map(_set_value, nodes)):
            return value
        imported = {name.partition(".")[0] for node in nodes for name in _imported(node)}
        return "1" if "tf_keras" in imported and "keras" not in imported else None

    def run(self) -> None:
        """Do what ``python FILE ARGS`` or ``python -m MODULE ARGS`` does.

        ``SystemExit`` is passed on with another code than 0.
        """
        sys.argv = [self.script or self.module, *self.args]
        try:
            if self.script:
                self._run_file(self.script)
            else:
                self._run_module(self.module)
        except SystemExit as end:
            if end.code not in {None, 0}:
                raise

    def _run_file(self, script: str) -> None:
        if not Path(script).is_file():
            raise TrainerError(f"{script}: no such file; the working directory is {Path.cwd()}")
        path = Path(script).absolute()
        sys.path.insert(0, str(path.resolve().parent))
        runpy.run_path(str(path), run_name="__main__")

    def _run_module(self, module: str) -> None:
        folder = str(Path.cwd())
        if folder not in sys.path:
            sys.path.insert(0, folder)
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _set_value(node: ast.AST) -> str | None:
    """Return the value that a statement gives TF_USE_LEGACY_KERAS in ``os.environ``."""
    match node:
        case ast.Assign([ast.Subscript(slice=ast.Constant(name))], ast.Constant(str(value))):
            pass
        case ast.Call(
            ast.Attribute(attr="setdefault"), [ast.Constant(name), ast.Constant(str(value))]
        ):
            pass
        case _:
            return None
    return value if name == LEGACY_KERAS else None


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
