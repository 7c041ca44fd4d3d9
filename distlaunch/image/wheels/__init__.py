"""An image's environment as a layer of wheels, with pip and without any engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.errors import ImageError
from distlaunch.image.layers import Layer
from distlaunch.image.registry.client import Registry
from distlaunch.image.tarball import Tarball
from distlaunch.image.wheels.installed import add_cuda_links, add_installed
from distlaunch.image.wheels.interpreter import find_interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlaunch.image.reference import Reference
    from distlaunch.image.wheels.interpreter import Interpreter

_LEVEL = 1  # what is in wheels is large, and much of it hardly gets smaller
_OLDEST_MANYLINUX = 5
_KEPT_LINES = 200
_NO_WHEEL = re.compile(r"No matching distribution found for ([^\s;]+)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_UNREACHABLE = re.compile(r"Retrying \(|Could not fetch URL|NewConnectionError")
_DENIED = re.compile(r"\b40[13] (?:Client )?Error")
_INCLUDED = re.compile(r"(?P<option>-r|--requirement|-c|--constraint)(?:\s+|=)(?P<file>.+)")
# What pip would build for this machine, whatever --only-binary says.
_SOURCE = re.compile(r"-e\b|--editable\b|\.{0,2}/|(?:[^-].*)?(?:(?:git|hg|svn|bzr)\+|file:)")
_ARCHIVE = re.compile(r"(?!-)(?:.*\s)?https?://[^\s#;]+(?<!\.whl)(?:[\s#;]|$)")

# pip asks the Python that it runs on for the markers ('; python_version < "3.12"'), whatever
# --python-version and --platform say; so the image's answers are given to its part that asks.
_PIP = """
import sys
sys.path = [each for each in sys.path if each]  # without the folder that it is started in
import json
from pip._vendor.packaging import markers
image = json.loads(sys.argv.pop(1))
here = markers.default_environment
markers.default_environment = lambda: {**here(), **image}
from pip._internal.cli.main import main
sys.exit(main())
"""


def environment_layer(
    base: Reference,
    requirements: str,
    file: Path,
    *,
    link_cuda: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Layer:
    """Write what pip installs for a base image as a layer.

    pip is that of the Python that runs this, with its own configuration: indexes, credentials and
    cache are those that ``pip install`` would use here.

    Parameters
    ----------
    base
        The image, whose Python is found out from its layers.
    requirements
        The text of a requirements file.
    file
        Where to write to; what pip unpacks goes to a folder beside it for as long.
    link_cuda
        Whether to add the symlinks that `cuda.LINK_COMMAND` creates.
    progress
        Told what is being done, a line each.

    Raises
    ------
    ImageError
        If the base has no Python that can be found, or a package has no wheel for it.
    """
    lines = _flattened(requirements, Path.cwd())
    _need_wheels(lines)
    with Registry(base) as registry:
        interpreter = find_interpreter(registry, registry.image(), progress)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix="wheels-") as folder:
        target = Path(folder, "target")
        _install(lines, target, interpreter, progress)
        progress("packing the environment")
        with Tarball(file, level=_LEVEL) as tarball:
            add_installed(tarball, target, interpreter)
            if link_cuda:
                add_cuda_links(tarball, target, interpreter)
            return Layer.of(file, tarball.finish(), "RUN pip install -r requirements.txt")


def _flattened(text: str, folder: Path, seen: frozenset[Path] = frozenset()) -> list[str]:
    """Return the lines of a requirements file, with those of the files that it includes."""
    lines: list[str] = []
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        plain = re.sub(r"(?:^|\s)#.*", "", line).strip()
        included = _INCLUDED.fullmatch(plain)
        if included is None:
            lines += [plain] if plain else []
            continue
        file = (folder / included["file"].strip()).resolve()
        if included["option"] in ("-c", "--constraint"):
            lines.append(f"-c {file}")
        elif file not in seen:
            lines += _flattened(_text(file), file.parent, seen | {file})
    return lines


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ImageError(f"{file}: requirements that cannot be read ({problem})") from problem


def _need_wheels(lines: list[str]) -> None:
    sources = [each for each in lines if _SOURCE.match(each) or _ARCHIVE.match(each)]
    if sources:
        raise _needs_engine(f"no wheel of {', '.join(sources)}, but its source")


def _needs_engine(what: str) -> ImageError:
    return ImageError(
        f"{what}, which needs an engine; install Docker and start it, or ask for a version "
        "that has a wheel"
    )


def _install(
    lines: list[str], target: Path, python: Interpreter, progress: Callable[[str], None]
) -> None:
    file = target.with_name("requirements.txt")
    file.write_text("\n".join(lines), encoding="utf-8")
    code, said = _pip(["--target", str(target), "-r", str(file)], python, progress)
    if code:
        raise _failed(said, lines, file, python)
    target.mkdir(exist_ok=True)  # nothing was asked for


def _pip(
    words: list[str], python: Interpreter, progress: Callable[[str], None]
) -> tuple[int, list[str]]:
    """Run pip for a Python of an image; return its exit code and its last lines."""
    command = [sys.executable, "-c", _PIP, json.dumps(_markers(python)), "install"]
    command += ["--no-input", "--no-compile", "--no-user", "--disable-pip-version-check"]
    command += ["--progress-bar=off", "--no-warn-conflicts", "--only-binary=:all:"]
    command += ["--implementation=cp", f"--python-version={python.short}"]
    command += [f"--platform={each}" for each in _platforms(python.glibc)]
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(
        command + words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                progress(f"pip: {lines[-1].strip()}")
        except BaseException:
            process.kill()
            raise
    return process.returncode, list(lines)


def _platforms(glibc: int) -> Iterator[str]:
    """Yield the tags of wheels that run on a version of glibc (PEP 600), the newest first."""
    aliases = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    for minor in range(glibc, _OLDEST_MANYLINUX - 1, -1):
        yield f"manylinux_2_{minor}_x86_64"
        if minor in aliases:
            yield f"{aliases[minor]}_x86_64"
    yield "linux_x86_64"


def _markers(python: Interpreter) -> dict[str, str]:
    """Return what the image's Python would answer to a requirement's marker (PEP 508)."""
    return {
        "implementation_name": "cpython",
        "implementation_version": python.version,
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": python.version,
        "python_version": python.short,
        "sys_platform": "linux",
    }


def _failed(said: list[str], lines: list[str], file: Path, python: Interpreter) -> ImageError:
    text = "\n".join(said)
    if "No module named 'pip'" in text:
        return ImageError(
            f"without an engine the image needs pip, which {sys.executable} has not; "
            f"run '{sys.executable} -m ensurepip'"
        )
    errors = [each.removeprefix("ERROR: ") for each in said if each.startswith("ERROR: ")]
    told = _as_written((errors or said[-1:] or ["it says nothing"])[0], lines, file)
    if _DENIED.search(text):
        return ImageError(f"pip is not let in by its index ({told}); check pip's credentials")
    if _UNREACHABLE.search(text):
        return ImageError(f"pip does not reach its index ({told}); check the network, or pip's own")
    missing = _without_wheel(text, lines, file, python)
    if missing:
        return _needs_engine(
            f"no wheel of {', '.join(missing)} for Python {python.short} on linux/amd64"
        )
    return ImageError(f"pip cannot install the requirements ({told}); mend them and try again")


def _as_written(said: str, lines: list[str], file: Path) -> str:
    """Name lines by what they say, as nobody knows the file that pip was given."""
    place = re.compile(rf"-r {re.escape(str(file))} \(line (\d+)\)")
    return place.sub(lambda found: lines[int(found[1]) - 1], said)


def _without_wheel(text: str, lines: list[str], file: Path, python: Interpreter) -> list[str]:
    """Name all requirements without a wheel; pip names one and stops, so it is asked again."""
    missing: list[str] = []
    while found := _NO_WHEEL.search(text):
        missing.append(found[1])
        left = [each for each in lines if _name(each) != _name(found[1])]
        if left == lines:
            break  # what a requirement itself requires
        lines = left
        file.write_text("\n".join(lines), encoding="utf-8")
        words = ["--dry-run", "--no-deps", "--target", str(file.parent), "-r", str(file)]
        _, said = _pip(words, python, lambda _: None)
        text = "\n".join(said)
    return missing


def _name(requirement: str) -> str:
    """Return the package that a requirement names, normalised (PEP 503)."""
    found = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""
