"""What ``pip install --target`` has made, put where a Python of an image looks for it."""

from __future__ import annotations

import csv
import os
import re
from typing import TYPE_CHECKING

from distlaunch.image import cuda
from distlaunch.image.wheels.interpreter import distribution

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator
    from pathlib import Path

    from distlaunch.image.tarball import Tarball
    from distlaunch.image.wheels.interpreter import Interpreter

_BESIDE = "../../"  # begins what a RECORD lists that lies beside the packages: bin, share
# An interpreter's line as pip writes it, also where the interpreter's path is too long for one.
_FIRST_LINE = re.compile(rb"#!(?:[^\n]*python[^\n]*\n|/bin/sh\n'''exec' [^\n]*\n' '''\n)")
_LARGEST_SCRIPT = 1 << 20


def add_installed(tarball: Tarball, target: Path, python: Interpreter) -> None:
    """Add a folder of packages to a layer.

    What the image has of the same packages in another version is taken away.

    Parameters
    ----------
    target
        What pip was told as ``--target``.
    python
        Whose packages they will be.
    """
    beside = _beside(target)
    old = {each: distribution(each) for each in python.entries}
    new = {distribution(each.name) for each in target.iterdir()} - {None}
    for entry in sorted(entry for entry, name in old.items() if name in new):
        if not (target / entry).exists():
            tarball.add_folders_of(f"{python.library}/{entry}", below=python.library)
            tarball.take_away(f"{python.library}/{entry}")
    replaced: set[str] = set()
    for path in _files(target):
        place = python.prefix if path in beside else python.library
        tarball.add_folders_of(f"{place}/{path}", below=_existing(place, path, python))
        top = path.partition("/")[0]
        if place == python.library and _is_replaced(top, target, python) and top not in replaced:
            replaced.add(top)
            tarball.replace_folder(f"{place}/{top}")
        _add(tarball, target / path, f"{place}/{path}", python)


def add_cuda_links(tarball: Tarball, target: Path, python: Interpreter) -> None:
    """Add symlinks to the CUDA libraries, as `cuda.LINK_COMMAND` does in an image.

    Parameters
    ----------
    target
        The folder that pip installed to.
    python
        Whose packages they will be; libraries of the base image are linked too.
    """
    folder = cuda.FOLDER.strip("/")
    tarball.add_folders_of(f"{folder}/", below=folder.rpartition("/")[0])
    kept = () if _is_replaced("nvidia", target, python) else python.cuda_libraries
    found = sorted({*kept, *filter(cuda.is_library, _files(target))}, reverse=True)
    links = {path.rpartition("/")[2]: path for path in found}  # of one name, the first path
    for name in sorted(links):
        tarball.add_link(f"{folder}/{name}", f"/{python.library}/{links[name]}")


def _existing(place: str, path: str, python: Interpreter) -> str:
    """Return the folder up to which the image's own is left as it is."""
    return f"{python.prefix}/bin" if path.startswith("bin/") else place


def _is_replaced(top: str, target: Path, python: Interpreter) -> bool:
    """Whether a package is the image's too; not so folders that several packages share."""
    return top in python.entries and (target / top / "__init__.py").exists()


def _beside(target: Path) -> set[str]:
    """Return the files that lie beside the packages, by what the packages' own lists say."""
    found: set[str] = set()
    for record in target.glob("*.dist-info/RECORD"):
        with record.open(newline="", encoding="utf-8") as opened:
            listed = (row[0] for row in csv.reader(opened) if row)
            found.update(each.removeprefix(_BESIDE) for each in listed if each.startswith(_BESIDE))
    return found


def _files(target: Path) -> Iterator[str]:
    """Yield the paths of all files, in an order that is the same everywhere."""
    found = [
        os.path.relpath(os.path.join(folder, name), target)  # noqa: PTH118 - many thousands
        for folder, _, names in os.walk(target)
        for name in names
    ]
    return iter(sorted(found, key=os.fsencode))


def _add(tarball: Tarball, file: Path, path: str, python: Interpreter) -> None:
    found = file.stat()
    mode = 0o755 if found.st_mode & 0o100 else 0o644
    with file.open("rb") as opened:
        if path.startswith(f"{python.prefix}/bin/") and found.st_size <= _LARGEST_SCRIPT:
            size, content = _mended(opened.read(), python)
            tarball.add_file(path, mode, size, content)
        else:
            tarball.add_file(path, mode, found.st_size, opened)


def _mended(script: bytes, python: Interpreter) -> tuple[int, io.BytesIO]:
    """Return a script with the image's interpreter in its first line."""
    import io

    line = f"#!{python.program}\n".encode()
    mended = _FIRST_LINE.sub(lambda _: line, script, count=1) if script[:2] == b"#!" else script
    return len(mended), io.BytesIO(mended)
