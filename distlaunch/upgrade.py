"""Upgrades of projects that have a copy of the trainer to the trainer package."""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch import resources
from distlaunch.errors import DistlaunchError, UpgradeRefused, os_reason
from distlaunch.files import refuse_symlinks
from distlaunch.resources import COPIED
from distlaunch.scaffold import write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HISTORY = Path(__file__).with_name("trainer_history.json")
"""SHA-256 of each earlier version of the files, by their paths beside the job's module."""

_PUBLIC = {"Arrays", "Records"}  # that the copied trainer had for a project's modules


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The changes of a project; paths are relative to its folder."""

    folder: Path
    written: Mapping[Path, str]  # new text by path
    removed: tuple[Path, ...]  # folders

    def diff(self) -> Iterator[str]:
        """Yield the lines of a unified diff, and one line for each removed folder."""
        for path, text in self.written.items():
            before = _text(self.folder / path).splitlines()
            names = (f"a/{path.as_posix()}", f"b/{path.as_posix()}")
            yield from difflib.unified_diff(before, text.splitlines(), *names, lineterm="")
        for path in self.removed:
            count = len(_files(self.folder / path))
            yield f"remove {path.as_posix()}/ ({count} files, as 'distlaunch init' wrote them)"

    def write(self, on_copy: Callable[[Path, Path], None]) -> None:
        """Write the changes; `on_copy` is called with each replaced file and its copy.

        DistlaunchError is raised if the system refuses; a second upgrade then does the rest.
        """
        path = Path()
        try:
            for path, text in self.written.items():
                refuse_symlinks((self.folder / path).parent, below=self.folder)
                copy = write_file(self.folder / path, text.encode())
                if copy:
                    on_copy(self.folder / path, copy)
            for path in self.removed:
                shutil.rmtree(self.folder / path)
        except OSError as problem:
            reason = os_reason(problem)
            raise DistlaunchError(f"{path}: {reason}; fix it, and run upgrade again") from None


def plan_upgrade(folder: Path) -> Upgrade | None:
    """Return the changes of a project, None if it has no copied trainer and no earlier task.py.

    UpgradeRefused is raised with a line for each file that the user changed and that would be
    replaced or removed, and for each import that has no equivalent.
    """
    from distlaunch.job.load import load_job

    package, _, name = load_job(folder.absolute()).job.module.rpartition(".")
    beside = Path(*package.split("."))
    task, copied = beside / f"{name}.py", beside / COPIED
    history = json.loads(HISTORY.read_text(encoding="utf-8"))
    page = _text(resources.skeleton() / "base/trainer/task.py")
    is_earlier = _hash(folder / task) in history["task.py"] and _text(folder / task) != page
    if not is_earlier and not (folder / copied / "__init__.py").is_file():
        return None
    changed = [
        copied / path
        for path in _files(folder / copied)
        if _hash(folder / copied / path) not in history.get(f"{COPIED}/{path.as_posix()}", ())
    ]
    if not is_earlier and _text(folder / task) != page:
        changed.append(task)
    imports = _Imports(folder, package, copied)
    if changed or imports.problems:
        raise UpgradeRefused([*map(_changed_line, sorted(changed)), *imports.problems])
    written = ({task: page} if is_earlier else {}) | imports.rewritten
    return Upgrade(folder, written, (copied,) if (folder / copied).is_dir() else ())


class _Imports:
    """The imports of the copied trainer in a project's other modules, rewritten."""

    def __init__(self, folder: Path, package: str, copied: Path) -> None:
        self.rewritten: dict[Path, str] = {}
        self.problems: list[str] = []
        prefix = re.escape(f"{package}.") if package else ""
        name = rf"(?:{prefix}|\.+){COPIED}"
        self._module = re.compile(rf"^(\s*from\s+){name}\.input(?=\s+import\b)")
        self._any = re.compile(rf"^\s*(?:from|import)\s+(?:{name}\b|\S+\s+import\s.*\b{COPIED}\b)")
        for path in _sources(folder):
            if copied not in path.parents and path != copied.with_name("task.py"):
                self._read(folder, path)

    def _read(self, folder: Path, path: Path) -> None:
        text = _text(folder / path)
        lines = text.split("\n")
        public = _public_imports(text)
        for number, line in enumerate(lines):
            if number + 1 in public:
                lines[number] = self._module.sub(rf"\g<1>{resources.TRAINER}", line)
            if self._any.match(lines[number]):
                self.problems.append(
                    f"{path}:{number + 1}: imports what {resources.TRAINER} does not offer; import "
                    f"only {' and '.join(sorted(_PUBLIC))} from {COPIED}.input, then upgrade"
                )
        if lines != text.split("\n"):
            self.rewritten[path] = "\n".join(lines)


def _public_imports(text: str) -> set[int]:
    """Return the numbers of the lines that begin an import of nothing but public names."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {node.lineno for node in imports if {alias.name for alias in node.names} <= _PUBLIC}


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the paths of a project's Python files, without hidden folders and environments."""
    for path in sorted(folder.iterdir()):
        is_environment = (path / "pyvenv.cfg").exists()
        if path.name.startswith(".") or path.is_symlink() or is_environment:
            continue
        if path.is_dir():
            yield from (Path(path.name) / below for below in _sources(path))
        elif path.suffix == ".py":
            yield Path(path.name)


def _files(folder: Path) -> list[Path]:
    """Return the paths of a folder's files, without bytecode."""
    files = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if not path.is_dir())
    return [path for path in files if "__pycache__" not in path.parts]


def _changed_line(path: Path) -> str:
    return (
        f"{path}: was changed since 'distlaunch init' wrote it, and would be replaced; undo the "
        "changes, or keep the copied trainer, which still works"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _hash(path: Path) -> str:
    """Return the hash of a file with the line ends of Unix, empty if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
    except OSError:
        return ""
