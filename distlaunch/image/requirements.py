"""What pip installs into an image: a TensorFlow that fits the cluster's machines."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distlaunch.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from distlaunch.job.model import Cluster

# Expressions that Python and GNU sed read alike: the rendered Dockerfile has the latter use them.
_TENSORFLOW = (
    r"^([ \t]*)tensorflow([-_.]+cpu|[ \t]*\[[ \t]*and-cuda[ \t]*\])?([ \t]*(\r?|[=<>!~;#(].*))$"
)
_LEFT_ALONE = r"--hash|\\\r?$"  # hashes are of one package; they stand on continued lines, too
_FOR_GPUS, _FOR_CPUS = "tensorflow[and-cuda]", "tensorflow-cpu"

_TAKES_IN = re.compile(
    r"\s*(?:-r|--requirement|-c|--constraint)(?:\s*=\s*|\s*)(\S.*?)\s*(?:\s#.*)?"
)
_OF_THIS_MACHINE = re.compile(r"\s*(?:(?:-e|--editable)(?:[ =]|$).*|file:.*|\.{0,2}/.*|\.{1,2})\s*")
_URL = re.compile(r"[a-z+]+://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Requirements:
    """A requirements file and the files that it takes in with ``-r`` and ``-c``.

    Parameters
    ----------
    name
        The first file's path, posix and relative to the project's folder.
    files
        The text of each file by its path, already made for the cluster.
    changed
        The files that had to be changed for that.
    """

    name: str
    files: Mapping[str, str]
    changed: tuple[str, ...] = ()


def read_requirements(folder: Path, name: str, *, gpu: bool) -> Requirements:
    """Read a requirements file and all that it takes in, made for CPUs or for GPUs.

    Raises
    ------
    ImageError
        If a file is missing or is no text, or asks for a folder or a file of this machine.
    """
    name = _inside(name, f"image.requirements: {name}")
    files: dict[str, str] = {}
    changed: list[str] = []
    pending = [name]
    while pending:
        path = pending.pop()
        if path not in files:
            text = _text(folder, path)
            files[path] = for_cluster(text, gpu=gpu)
            changed += [path] if files[path] != text else []
            pending += _taken_in(path, text)
    return Requirements(name, files, tuple(changed))


def for_cluster(text: str, *, gpu: bool) -> str:
    """Return requirements with the TensorFlow that a cluster's machines need.

    ``tensorflow`` and ``tensorflow[and-cuda]`` become ``tensorflow-cpu`` where there are no GPUs;
    ``tensorflow`` and ``tensorflow-cpu`` become ``tensorflow[and-cuda]`` where there are. Versions,
    markers and all other lines are kept, as is a line with a URL or with hashes.
    """
    return "\n".join(_line_for_cluster(line, gpu=gpu) for line in text.split("\n"))


def sed_script(*, gpu: bool) -> str:
    """Return the script that does as `for_cluster` does, for ``sed -E``."""
    name = _FOR_GPUS if gpu else _FOR_CPUS
    return rf"/{_LEFT_ALONE}/!s/{_TENSORFLOW}/\1{name}\3/I"


def has_gpus(cluster: Cluster) -> bool:
    """Whether a machine of the cluster has an NVIDIA accelerator."""
    pools = (cluster.chief, cluster.workers, cluster.parameter_servers, cluster.evaluators)
    kinds = [pool.machine.accelerator for pool in pools if pool]
    return any(kind is not None and kind.startswith("NVIDIA") for kind in kinds)


def _line_for_cluster(line: str, *, gpu: bool) -> str:
    if re.search(_LEFT_ALONE, line):
        return line
    name = _FOR_GPUS if gpu else _FOR_CPUS
    return re.sub(_TENSORFLOW, rf"\g<1>{name}\g<3>", line, count=1, flags=re.IGNORECASE)


def _text(folder: Path, path: str) -> str:
    try:
        return (folder / path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ImageError(
            f"{path}: not UTF-8 text; expected requirements as pip takes them"
        ) from None
    except FileNotFoundError:
        raise ImageError(
            f"{path}: no such file; write what pip is to install into it, "
            "or name another with image.requirements"
        ) from None
    except OSError as problem:
        said = (problem.strerror or str(problem)).lower()
        raise ImageError(f"{path}: cannot be read ({said})") from None


def _taken_in(path: str, text: str) -> Iterator[str]:
    """Yield the files that a requirements file takes in, by their paths in the project."""
    for number, line in enumerate(text.split("\n"), start=1):
        place = f"{path}:{number}"
        if _OF_THIS_MACHINE.fullmatch(line):
            raise ImageError(
                f"{place}: {line.strip()!r} is only on this machine; have pip install it from an "
                "index or a URL, put its code into image.include, or name your own image.dockerfile"
            )
        found = _TAKES_IN.fullmatch(line)
        if found and not _URL.match(found[1]):
            yield _inside(posixpath.join(posixpath.dirname(path), found[1]), f"{place}: {found[1]}")


def _inside(path: str, said: str) -> str:
    path = posixpath.normpath(path)
    if path.startswith(("/", "../")) or path in ("..", "."):
        raise ImageError(f"{said}: expected a file in the project's folder, as requirements.txt")
    return path
