"""An image's environment without Docker: pip installs wheels into a layer.

The base image's Python is read from its layers, without running it. pip runs here, on any system,
and evaluates environment markers as that Python would.
"""

from __future__ import annotations

import csv
import io
import json
import os
import posixpath
import re
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from distlaunch.errors import ImageError
from distlaunch.image.docker import failure_reason, run_command
from distlaunch.image.dockerfile_parser import expand
from distlaunch.image.layers import Layer, LayerWriter
from distlaunch.image.recipe import CODE, CUDA_FOLDER, REQUIREMENTS, EnvironmentSpec
from distlaunch.image.registry.client import Registry, RemoteImage
from distlaunch.image.registry.manifests import ImageSettings, environment_variables
from distlaunch.image.requirements import Requirements, markers
from distlaunch.image.trainer_wheel import install_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from distlaunch.image.context import ContextFile
    from distlaunch.image.reference import Reference

_LEVEL = 1  # of gzip: wheels are large, and their libraries hardly get smaller
# Docker's, for an image that sets none:
# https://github.com/moby/buildkit/blob/master/util/system/path.go
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BESIDE = "../../"  # in a RECORD: beside the packages, e.g. bin or share
# An interpreter's line as pip writes it, also if the interpreter's path is too long for one.
_FIRST_LINE = re.compile(rb"#!(?:[^\n]*python[^\n]*\n|/bin/sh\n'''exec' [^\n]*\n' '''\n)")
_CUDA_LIBRARY = re.compile(r"nvidia/[^/]+/lib/[^/]+\.so[^/]*")  # that `LINK_CUDA` links to
# manylinux1 is for glibc 2.5 (PEP 513), and there is none before.
_OLDEST_MANYLINUX = 5
# pip may print megabytes, and its reason last.
_KEPT_LINES = 200
# pip has no option for the values of environment markers, and reads those of its own Python here.
_PIP = """
import json, runpy, sys
from pip._vendor.packaging import markers
if environment := json.loads(sys.argv.pop(1)):
    here = markers.default_environment()
    markers.default_environment = lambda: here | environment
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
_TARGET = "target"  # the folder of the packages in the scratch folder
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

    pip is that of the Python that runs this, with its own indexes, credentials and cache.
    """
    with Registry(base) as registry:
        image = registry.image()
        variables = {"PATH": _DEFAULT_PATH, **environment_variables(image.config)}
        python = find_python(registry, image, variables, progress)
    target = scratch / _TARGET
    target.mkdir()
    files: dict[str, bytes] = {}
    if pip := spec.requirements:
        _install(pip, scratch, python, progress)
        files = {f"{REQUIREMENTS}/{path}": pip.files[path].encode() for path in sorted(pip.files)}
    if wheel := spec.trainer_wheel:
        _install_trainer(wheel, scratch, progress)
        files[f"{CODE}/{wheel.path}"] = wheel.content or b""
    progress("packing the environment")
    with LayerWriter(scratch / "environment.tar.gz", level=_LEVEL) as layer:
        for path, content in files.items():
            layer.add_folders(path[1:])
            layer.add_file(path[1:], 0o644, len(content), io.BytesIO(content))
        _add_packages(layer, target, python)
        if spec.gpu:
            _add_cuda_links(layer, target, python)
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


def _install(
    requirements: Requirements, scratch: Path, python: BasePython, progress: Callable[[str], None]
) -> None:
    """Run ``pip install`` for the image's Python, and check what it has installed."""
    for path, text in requirements.files.items():
        file = scratch / "requirements" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    report, constraints = scratch / "report.json", scratch / "constraints.txt"
    # In the image pip keeps installed packages if they satisfy the requirements.
    installed = [f"{name}=={version}\n" for name, version in sorted(python.installed.items())]
    constraints.write_text("".join(installed), encoding="utf-8")
    words = ["install", "--report", str(report), "--constraint", str(constraints)]
    words += ["--no-input", "--no-warn-conflicts", "--only-binary=:all:"]
    words += ["--implementation=cp", f"--python-version={python.version}"]
    words += [f"--platform={tag}" for tag in _platforms(python.glibc)]
    words += ["--requirement", str(scratch / "requirements" / requirements.name)]
    environment = markers(python.version)
    if reason := _run_pip(words, scratch, progress, environment):
        raise ImageError(
            f"pip cannot install wheels for Python {python.short} on linux/amd64 ({reason}); fix "
            "the requirements, or install Docker"
        )
    _check_report(json.loads(report.read_text(encoding="utf-8")), environment)


def _install_trainer(wheel: ContextFile, scratch: Path, progress: Callable[[str], None]) -> None:
    """Run ``pip install`` for the trainer package alone."""
    folder = scratch / "wheels"
    folder.mkdir()
    (folder / posixpath.basename(wheel.path)).write_bytes(wheel.content or b"")
    if reason := _run_pip(install_words(folder), scratch, progress):
        raise ImageError(f"pip cannot install {wheel.path} ({reason}); install Docker")


def _run_pip(
    words: Iterable[str],
    scratch: Path,
    progress: Callable[[str], None],
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run ``pip install`` for a scratch folder; return why it failed, empty if it did not."""
    command = [sys.executable, "-X", "utf8", "-c", _PIP, json.dumps(environment)]
    command += [*words, "--target", str(scratch / _TARGET)]
    command += ["--no-compile", "--no-user", "--disable-pip-version-check", "--progress-bar=off"]
    lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def show(line: str) -> None:
        lines.append(line)
        progress(f"pip: {line.strip()}")

    # Not in the project's folder, which may have a folder named pip.
    if run_command(command, show, cwd=sys.prefix) == 0:
        return ""
    return failure_reason([*lines])


def _check_report(report: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Refuse packages that are no wheels, and what pip has selected for another Python."""
    if not environment.items() <= report["environment"].items():
        raise ImageError("this pip selects packages for its own Python alone; install Docker")
    for item in report["install"]:
        if not item["download_info"]["url"].partition("#")[0].endswith(".whl"):
            name = canonicalize_name(item["metadata"]["name"])
            raise ImageError(
                f"Docker is needed for {name}, which is not a wheel; install Docker and start it"
            )


def _platforms(glibc: int) -> Iterator[str]:
    """Yield the tags of wheels that run on a version of glibc (PEP 600), the newest first."""
    aliases = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    # pip matches a tag exactly: a wheel for an older glibc is found by its own tag only.
    for minor in range(glibc, _OLDEST_MANYLINUX - 1, -1):
        yield f"manylinux_2_{minor}_x86_64"
        if minor in aliases:
            yield f"{aliases[minor]}_x86_64"
    yield "linux_x86_64"


def _add_packages(layer: LayerWriter, target: Path, python: BasePython) -> None:
    """Add the folder of ``pip install --target``."""
    beside = _beside(target)
    for path in _files(target):
        folder = python.prefix if path in beside else python.library
        file = target / path
        status = file.stat()
        mode = 0o755 if status.st_mode & 0o100 else 0o644
        if path in beside and path.startswith("bin/"):
            script = _script(file, python)
            name = f"{folder}/{path.removesuffix('.exe')}"
            layer.add_folders(name, below=f"{folder}/bin")
            mode = 0o755 if sys.platform == "win32" else mode
            layer.add_file(name, mode, len(script), io.BytesIO(script))
        else:
            layer.add_folders(f"{folder}/{path}", below=folder)
            with file.open("rb") as opened:
                layer.add_file(f"{folder}/{path}", mode, status.st_size, opened)


def _script(file: Path, python: BasePython) -> bytes:
    """Return a console script for the image's Python."""
    if file.suffix == ".exe":  # pip's on Windows: a program, and behind it a zip file of the script
        with zipfile.ZipFile(file) as archive:
            content = b"#!python\n" + archive.read("__main__.py")
    else:
        content = file.read_bytes()
    return _FIRST_LINE.sub(f"#!{python.program}\n".encode(), content, count=1)


def _add_cuda_links(layer: LayerWriter, target: Path, python: BasePython) -> None:
    """Add the symlinks to CUDA's libraries."""
    folder = CUDA_FOLDER.strip("/")
    layer.add_folders(f"{folder}/", below=posixpath.dirname(folder))
    libraries = filter(_CUDA_LIBRARY.fullmatch, reversed(_files(target)))
    links = {posixpath.basename(path): path for path in libraries}
    for name in sorted(links):  # of several paths with one name, the first
        layer.add_link(f"{folder}/{name}", f"/{python.library}/{links[name]}")


def _beside(target: Path) -> set[str]:
    """Return the files that belong beside the packages, from the packages' own lists."""
    paths: set[str] = set()
    for record in target.glob("*.dist-info/RECORD"):
        with record.open(newline="", encoding="utf-8") as opened:
            listed = (row[0] for row in csv.reader(opened) if row)
            paths.update(path.removeprefix(_BESIDE) for path in listed if path.startswith(_BESIDE))
    return paths


def _files(folder: Path) -> list[str]:
    """Return the paths of all files, in an order that is the same everywhere."""
    paths = [
        os.path.relpath(os.path.join(top, name), folder).replace(os.sep, "/")  # noqa: PTH118 - many
        for top, _, names in os.walk(folder)
        for name in names
    ]
    return sorted(paths, key=os.fsencode)
