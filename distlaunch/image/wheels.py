"""An image's environment without Docker: uv installs wheels into a layer.

The base image's Python is read from its layers, without running it.
"""

from __future__ import annotations

import csv
import io
import os
import posixpath
import re
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from distlaunch.errors import ImageError
from distlaunch.image import uv
from distlaunch.image.dockerfile_parser import expand
from distlaunch.image.layers import Layer, LayerWriter
from distlaunch.image.recipe import CODE, CUDA_FOLDER, REQUIREMENTS, EnvironmentSpec
from distlaunch.image.registry.client import Registry, RemoteImage
from distlaunch.image.registry.manifests import ImageSettings, environment_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from distlaunch.image.reference import Reference

_LEVEL = 1  # of gzip: wheels are large, and their libraries hardly get smaller
# Docker's, for an image that sets none:
# https://github.com/moby/buildkit/blob/master/util/system/path.go
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# uv's folders of packages and scripts below a prefix, by the system that it runs on.
_PACKAGES = ("lib*/python3.*/site-packages", "Lib/site-packages")
_SCRIPTS = ("bin/", "Scripts/")
_OF_UV = ("uv_cache.json", ".lock")  # with times of this machine
# The interpreter's line of a script, also if the interpreter's path is too long for one.
_FIRST_LINE = re.compile(rb"#!(?:[^\n]*python[^\n]*\n|/bin/sh\n'''exec' [^\n]*\n' '''\n)")
_SCRIPT = """\
#!{python}
import sys
from {module} import {name}
if __name__ == "__main__":
    sys.exit({attribute}())
"""
_CUDA_LIBRARY = re.compile(r"nvidia/[^/]+/lib/[^/]+\.so[^/]*")  # that `LINK_CUDA` links to
_PYTHON = re.compile(r"(?P<prefix>.+)/bin/python3\.(?P<minor>[0-9]+)", re.ASCII)
_DISTRIBUTION = re.compile(
    r"(?P<library>(?:.+/)?lib/python3(?:\.[0-9]+)?/(?:site|dist)-packages)"
    r"/(?P<name>[^-/]+)-(?P<version>[^-/]+)(?:-[^/]*)?\.(?:dist|egg)-info(?:/.*)?"
)
_LIBC = re.compile(r"(?:usr/)?lib(?:64|/x86_64-linux-gnu)?/libc(?:\.so\.6|-2\.[0-9]+\.so)")
_RELEASE = re.compile(rb"stable release version 2\.([0-9]+)")
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class BasePython:
    """A Python in an image."""

    version: str  # the last number is 0 if the image does not name it
    prefix: str  # the folder of `bin`, e.g. usr/local
    library: str  # the folder of packages, e.g. usr/local/lib/python3.12/site-packages
    glibc: int  # the minor version of the C library 2.x
    installed: Mapping[str, str]  # versions by normalised names

    @property
    def short(self) -> str:
        """E.g. ``3.12``."""
        return self.version.rpartition(".")[0]

    @property
    def program(self) -> str:
        """E.g. ``/usr/local/bin/python3.12``."""
        return f"/{self.prefix}/bin/python{self.short}"


def install_environment(
    spec: EnvironmentSpec, base: Reference, scratch: Path, progress: Callable[[str], None]
) -> tuple[Layer, ImageSettings]:
    """Install an environment, and write it as a layer of a base image in a scratch folder.

    uv installs the lines of package indexes; ImageError is raised for other ones, before anything
    is read from the registry.
    """
    lines = [*spec.requirements.lines()] if spec.requirements else []
    if refused := uv.refusals(lines):
        raise ImageError(problems=refused)
    with Registry(base) as registry:
        image = registry.image()
        variables = {"PATH": _DEFAULT_PATH, **environment_variables(image.config)}
        python = find_python(registry, image, variables, progress)
    prefix, files = scratch / "prefix", dict[str, bytes]()
    prefix.mkdir()
    if pip := spec.requirements:
        target = uv.ImagePython(python.version, python.glibc)
        uv.install(lines, python.installed, target, prefix, progress)
        files = {f"{REQUIREMENTS}/{path}": pip.files[path].encode() for path in sorted(pip.files)}
    packages = dict(_installed(prefix, python))
    if wheel := spec.trainer_wheel:
        files[f"{CODE}/{wheel.path}"] = wheel.content or b""
        with zipfile.ZipFile(io.BytesIO(wheel.content or b"")) as archive:
            unpacked = {name: archive.read(name) for name in archive.namelist()}
        packages |= {f"{python.library}/{path}": data for path, data in unpacked.items()}
    progress("packing the environment")
    with LayerWriter(scratch / "environment.tar.gz", level=_LEVEL) as layer:
        for path, content in files.items():
            layer.add_folders(path[1:])
            layer.add_file(path[1:], 0o644, len(content), io.BytesIO(content))
        for path in sorted(packages, key=os.fsencode):
            _add(layer, path, packages[path], python)
        if spec.gpu:
            _add_cuda_links(layer, packages, python)
        added = layer.finish("RUN pip install -r requirements.txt")
    env = {name: expand(value, variables) or "" for name, value in spec.env.items()}
    return added, ImageSettings(env=env, workdir=CODE)


def find_python(
    registry: Registry,
    image: RemoteImage,
    variables: Mapping[str, str],
    progress: Callable[[str], None],
) -> BasePython:
    """Return the first Python on PATH of an image with these variables; refuse it without glibc."""
    name = str(registry.repository)
    paths, glibc = _read_layers(registry, image, progress)
    if glibc is None:
        raise ImageError(
            f"{name} does not use glibc, which wheels for Linux need; choose a base of Debian, "
            "e.g. python:3.12-slim, or install Docker"
        )
    pythons = [match for path in paths if (match := _PYTHON.fullmatch(path))]
    for folder in variables["PATH"].split(":"):
        here = [each for each in pythons if f"/{each['prefix']}/bin" == folder.rstrip("/")]
        if here:
            python = max(here, key=lambda each: int(each["minor"]))
            break
    else:
        raise ImageError(
            f"{name} has no Python 3 on its PATH; choose a base with one, e.g. python:3.12-slim, "
            "or install Docker"
        )
    prefix, short = python["prefix"], f"3.{python['minor']}"
    library = f"{prefix}/lib/python{short}/site-packages"
    if prefix == "usr":  # Debian's Python: packages beside its own are here
        library = f"usr/local/lib/python{short}/dist-packages"
    packages = [match for path in paths if (match := _DISTRIBUTION.fullmatch(path))]
    installed: dict[str, str] = {
        canonicalize_name(each["name"]): each["version"]
        for each in packages
        if each["library"] == library
    }
    named = variables.get("PYTHON_VERSION", "")
    version = named if named.startswith(f"{short}.") else f"{short}.0"
    return BasePython(version, prefix, library, glibc, installed)


def _read_layers(
    registry: Registry, image: RemoteImage, progress: Callable[[str], None]
) -> tuple[set[str], int | None]:
    """Return the paths of Pythons and of packages' metadata in an image, and the version of glibc.

    A layer may remove files of earlier ones.
    """
    paths: set[str] = set()
    glibc = None
    layers = image.manifest["layers"]
    for index, each in enumerate(layers, 1):
        size = f"{each['size'] / 1e6:.1f} MB"
        name = registry.repository
        progress(f"looking for Python in {name}: layer {index} of {len(layers)} ({size})")
        with tempfile.TemporaryFile() as file:
            try:
                for chunk in registry.blob(each["digest"], each["size"]).chunks():
                    file.write(chunk)
                file.seek(0)
                with tarfile.open(fileobj=file) as tar:
                    for entry in tar:
                        path = entry.name.removeprefix("./")
                        if path.rpartition("/")[2].startswith(_WHITEOUT):
                            paths -= _removed(paths, path)
                        elif _PYTHON.fullmatch(path) or _DISTRIBUTION.fullmatch(path):
                            paths.add(path)
                        elif _LIBC.fullmatch(path) and entry.isreg():
                            file_of_libc = tar.extractfile(entry)
                            release = _RELEASE.search(file_of_libc.read()) if file_of_libc else None
                            glibc = int(release[1]) if release else glibc
            except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
                raise ImageError(
                    f"a layer of {name} cannot be read ({error}); choose a base with gzipped "
                    "layers, or install Docker"
                ) from error
    return paths, glibc


def _removed(paths: set[str], whiteout: str) -> set[str]:
    """Return the paths that a whiteout of a layer removes."""
    folder, _, name = whiteout.rpartition("/")
    removed = folder if name == _OPAQUE else f"{folder}/{name.removeprefix(_WHITEOUT)}"
    return {each for each in paths if f"{each}/".startswith(f"{removed}/")}


def _installed(prefix: Path, python: BasePython) -> Iterator[tuple[str, Path | bytes]]:
    """Yield the paths in the image of what uv has installed, with the file or its content."""
    folders = [path for pattern in _PACKAGES for path in prefix.glob(pattern)]
    roots = [f"{folder.relative_to(prefix).as_posix()}/" for folder in folders]
    programs = dict(_programs(folders, python))
    for file in _files(prefix):
        path = file.relative_to(prefix).as_posix()
        root = next((each for each in roots if path.startswith(each)), None)
        if file.name in _OF_UV:
            continue
        if root:
            content = _record(file) if file.name == "RECORD" else file
            yield f"{python.library}/{path.removeprefix(root)}", content
        elif not path.startswith(_SCRIPTS):
            yield f"{python.prefix}/{path}", file
        elif file.name.removesuffix(".exe") not in programs:
            script = _FIRST_LINE.sub(f"#!{python.program}\n".encode(), file.read_bytes(), count=1)
            yield f"{python.prefix}/bin/{file.name}", script
    for name, script in programs.items():
        yield f"{python.prefix}/bin/{name}", script


def _programs(folders: list[Path], python: BasePython) -> Iterator[tuple[str, bytes]]:
    """Yield the scripts of entry points, which uv writes for the system that it runs on."""
    for package in distributions(path=[*map(str, folders)]):
        for entry in package.entry_points:
            if entry.group in ("console_scripts", "gui_scripts"):
                values = {"module": entry.module, "attribute": entry.attr}
                values |= {"name": entry.attr.partition(".")[0], "python": python.program}
                yield entry.name, _SCRIPT.format_map(values).encode()


def _record(file: Path) -> bytes:
    """Return a list of a package's files without what depends on this machine."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for path, *rest in csv.reader(io.StringIO(file.read_text(encoding="utf-8"))):
        if posixpath.basename(path) not in _OF_UV:
            writer.writerow([path, "", ""] if path.startswith("..") else [path, *rest])
    return text.getvalue().encode()


def _add(layer: LayerWriter, path: str, content: Path | bytes, python: BasePython) -> None:
    """Add a file to the layer; programs are executable."""
    programs = f"{python.prefix}/bin"
    is_program = path.startswith(f"{programs}/")
    is_package = path.startswith(f"{python.library}/")
    below = python.library if is_package else programs if is_program else python.prefix
    layer.add_folders(path, below=below)
    if isinstance(content, bytes):
        layer.add_file(path, 0o755 if is_program else 0o644, len(content), io.BytesIO(content))
        return
    status = content.stat()
    with content.open("rb") as opened:
        mode = 0o755 if status.st_mode & 0o100 or is_program else 0o644
        layer.add_file(path, mode, status.st_size, opened)


def _add_cuda_links(layer: LayerWriter, packages: Iterable[str], python: BasePython) -> None:
    """Add the symlinks to CUDA's libraries; of several paths with one name, to the first."""
    folder, library = CUDA_FOLDER.strip("/"), f"{python.library}/"
    layer.add_folders(f"{folder}/", below=posixpath.dirname(folder))
    paths = [path.removeprefix(library) for path in sorted(packages, reverse=True)]
    links = {posixpath.basename(path): path for path in filter(_CUDA_LIBRARY.fullmatch, paths)}
    for name in sorted(links):
        layer.add_link(f"{folder}/{name}", f"/{library}{links[name]}")


def _files(folder: Path) -> Iterator[Path]:
    for top, _, names in os.walk(folder):
        yield from (Path(top, name) for name in names)
