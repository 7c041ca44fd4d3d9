"""Scaffolding of a project: the skeleton is copied into a folder, with the name filled in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch import resources
from distlaunch.documentation import SITE
from distlaunch.errors import DistlaunchError, os_reason
from distlaunch.files import atomic_write, refuse_symlinks
from distlaunch.job.model import DEFAULT_BASE
from distlaunch.job.names import project_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TEMPLATE = ".j2"
_ABOUT = Path("ABOUT.md")  # of a starter; a part of the project's README
SCRIPT = Path("train.py")  # of a starter with a script
_TEST_OF_SCRIPT = Path("tests/test_train.py")
_TRAINER = ("trainer", "tests")  # which a starter with a script does not take over
SCHEMA = Path("distlaunch.schema.json")  # the job file's keys, for editors
_MOST_NAMED = 10  # files that a refusal names
_FORCE = "--force, which keeps each file that it changes as FILE.bak"


@dataclass(frozen=True)
class Scaffold:
    """A project that is ready to be written."""

    name: str
    files: Mapping[Path, bytes]  # content by path below the project's folder

    def write(
        self,
        folder: Path,
        *,
        overwrite: bool = False,
        on_copy: Callable[[Path, Path], None] | None = None,
    ) -> None:
        """Write all files below a folder, which is created if it is missing.

        Existing files are replaced if `overwrite` is set; one with other content is kept as
        FILE.bak, and `on_copy` is called with both paths. DistlaunchError is raised if a file is in
        the way and it is not set (then nothing was written), or if the system refuses to write.
        """
        written = 0
        path = Path()
        try:
            self._refuse(folder, overwrite=overwrite)
            for written, (path, content) in enumerate(self.files.items()):  # noqa: B007
                refuse_symlinks((folder / path).parent, below=folder)
                copy = write_file(folder / path, content)
                if copy and on_copy:
                    on_copy(folder / path, copy)
        except OSError as problem:
            progress = "nothing was written"
            if written:
                files = f"{written} of {len(self.files)} files were written"
                progress = f"{files}; once that is fixed, run again with {_FORCE}"
            raise DistlaunchError(f"{folder / path}: {os_reason(problem)}; {progress}") from None

    def _refuse(self, folder: Path, *, overwrite: bool) -> None:
        if folder.exists() and not folder.is_dir():
            raise DistlaunchError(f"{folder}: is a file; expected a folder or a new name")
        taken = sorted(path for path in self.files if _is_taken(folder, path))
        if taken and not overwrite:
            names = ", ".join(str(folder / path) for path in taken[:_MOST_NAMED])
            more = f" and {len(taken) - _MOST_NAMED} more" if len(taken) > _MOST_NAMED else ""
            raise DistlaunchError(
                f"{names}{more} would be overwritten; choose another folder, or add {_FORCE}"
            )


def plan(folder: Path, starter: str) -> Scaffold:
    """Return the project of a folder's name: a starter over the skeleton's base.

    A script that is in the folder takes the place of the starter's.
    """
    from distlaunch.job.json_schema import schema_text

    if folder.is_symlink() and not folder.exists():
        raise DistlaunchError(f"{folder}: is a broken symlink; expected a folder or a new name")
    name = project_name(Path(os.path.realpath(folder)).name)
    facts, (*below, own) = resources.starter(starter)
    files: dict[Path, bytes] = {}
    for layer in (resources.skeleton() / "base", *below):
        files |= _contents(layer)
    if facts.get("script"):
        files = {path: data for path, data in files.items() if path.parts[0] not in _TRAINER}
    files |= _contents(own)
    if facts.get("script") and _has_script(folder):
        for path in (SCRIPT, _TEST_OF_SCRIPT):
            del files[path]
        facts = {**facts, "args": []}
    about = files.pop(_ABOUT, b"").decode().strip()
    own_facts = {"name": name, "base": DEFAULT_BASE, "about": about, "site": SITE}
    facts = {"script": False, **facts, **own_facts}
    files = dict(_rendered(path, data, facts) for path, data in files.items())
    return Scaffold(name, files | {SCHEMA: schema_text().encode()})


def _has_script(folder: Path) -> bool:
    """Whether a folder that is no project yet has a script of the sample's name."""
    from distlaunch.job.load import FILE_NAME

    return (folder / SCRIPT).is_file() and not (folder / FILE_NAME).exists()


def trainer_copy(folder: Path) -> Scaffold:
    """Return the trainer package as files of a project, without those that are there already."""
    package = resources.trainer_package()
    files = {Path(package.name) / path: content for path, content in _contents(package).items()}
    missing = {path: data for path, data in files.items() if not _is_equal(folder / path, data)}
    return Scaffold(package.name, missing)


def _contents(source: Path) -> dict[Path, bytes]:
    """Return the files of a part of the skeleton, by path."""
    files = [file for file in sorted(source.rglob("*")) if file.is_file()]
    contents = {file.relative_to(source): file for file in files}
    return {path: file.read_bytes() for path, file in contents.items() if not _is_left_out(path)}


def _is_left_out(path: Path) -> bool:
    """Whether this is a by-product of running the skeleton in place, or describes a starter."""
    hidden = any(part.startswith(".") and part != ".gitignore" for part in path.parts)
    is_bytecode = path.suffix == ".pyc" or "__pycache__" in path.parts
    return hidden or is_bytecode or path == Path(resources.FACTS)


def _rendered(path: Path, content: bytes, facts: Mapping[str, Any]) -> tuple[Path, bytes]:
    """Return a file of the project, rendered if it is a template."""
    if path.suffix != TEMPLATE:
        return path, content
    import jinja2  # only `init` needs them
    import yaml

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        autoescape=False,  # noqa: S701 - no HTML is written
    )
    environment.filters["yaml"] = lambda value: yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=1000
    ).splitlines()[0]
    return path.with_suffix(""), environment.from_string(content.decode()).render(facts).encode()


def _is_taken(folder: Path, path: Path) -> bool:
    target = folder / path
    if target.exists() or target.is_symlink():
        return True
    above = [folder / parent for parent in path.parents]
    return any(parent.exists() and not parent.is_dir() for parent in above)


def write_file(path: Path, content: bytes) -> Path | None:
    """Write a file atomically; one with other content is renamed, and its new path returned."""
    if _is_equal(path, content):
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    copy = _free_path(path) if path.is_symlink() or path.is_file() else None
    if copy:
        path.rename(copy)
    try:
        atomic_write(path, content)
    except OSError:
        if copy:
            copy.rename(path)
        raise
    return copy


def _is_equal(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _free_path(path: Path) -> Path:
    """Return ``FILE.bak``, or ``FILE.1.bak`` and so on where there are copies already."""
    copy = path.with_name(f"{path.name}.bak")
    numbers = count(1)
    while os.path.lexists(copy):
        copy = path.with_name(f"{path.name}.{next(numbers)}.bak")
    return copy
