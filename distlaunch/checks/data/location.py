"""Where the files of a pattern are: in a bucket, in the image, or on this machine alone."""

from __future__ import annotations

import glob
import os.path
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distlaunch.checks.data.values import HOMES
from distlaunch.checks.problem import Problem, error
from distlaunch.checks.required_fields import PLACEHOLDER_BUCKET
from distlaunch.render.templates import CODE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from distlaunch.checks.project.image_runtime import Surroundings
    from distlaunch.submit.plan import Order

_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9.+-]*)://")
_OF_TENSORFLOW = ("gs", "ram")  # what tf.io.gfile.get_registered_schemes() tells beside files
_WITH_MORE = b"tensorflow_io"  # as a program imports it, TensorFlow reads s3:// and others
_MADE_THERE = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - nothing is written
_STARS = re.compile(r"\*+")  # two of them are nothing else to TensorFlow
_SOME = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Found:
    """What is found of a pattern.

    Parameters
    ----------
    files
        Those that can be read here; of the project's, those that are in the image too. None where
        they are elsewhere.
    problem
        Why the program won't find them, if it won't.
    is_lasting
        Whether that is so whatever the program fetches before.
    """

    files: tuple[Path, ...] | None
    problem: Problem | None = None
    is_lasting: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """A project and its container.

    Parameters
    ----------
    order
        The job.
    let_in
        The project's files that go into the image: posix paths.
    around
        What else there is in the image.
    """

    order: Order
    let_in: Collection[str]
    around: Surroundings

    def look(self, pattern: str, where: str) -> Found:
        """Return what a program in the container finds of a pattern.

        Parameters
        ----------
        where
            The place in the source that names the pattern.
        """
        pattern = pattern.removeprefix("file://")
        if _URL.match(pattern) or pattern.startswith("/gcs/"):
            return Found(None, self._in_cloud(pattern, where), is_lasting=True)
        if _WINDOWS.match(pattern) or pattern.startswith("~"):
            return Found(None, self._on_this_machine(pattern, where))
        path = "/" + posixpath.normpath(posixpath.join(CODE, pattern)).lstrip("/")
        if f"{path}/".startswith(f"{CODE}/"):
            return self._in_project(path[len(CODE) + 1 :] or ".", pattern, where)
        return self._outside(path, where)

    def handed(self, paths: Collection[tuple[str, str]]) -> Iterator[Problem]:
        """Yield what is wrong with paths that the program reads by itself, each with its place."""
        if self._is_plain:
            yield from (self._on_this_machine(path, where) for path, where in paths)

    def _in_cloud(self, pattern: str, where: str) -> Problem | None:
        url = _URL.match(pattern)
        if url and url[1] not in _OF_TENSORFLOW:
            return None if self._imports_more else self._unreadable(pattern, url[1], where)
        bucket = pattern.replace("/gcs/", "gs://", 1) if url is None else pattern
        is_left = f"{bucket}/".startswith(f"{PLACEHOLDER_BUCKET}/")
        return self._placeholder(where) if is_left and not self.order.is_for_emulator else None

    @property
    def _imports_more(self) -> bool:
        sources = (self.order.folder / file for file in self.let_in if file.endswith(".py"))
        return any(_WITH_MORE in _content(source) for source in sources)

    def _unreadable(self, url: str, scheme: str, where: str) -> Problem:
        goal, name = self._goal, _name_of(url)
        copy = f"with 'gcloud storage cp {url} {goal}/'" if scheme == "s3" else f"to {goal}/"
        return error(
            "data-unreadable",
            where,
            f"{url} cannot be read: TensorFlow reads gs://, /gcs/ and files of the image, and no "
            f"{scheme}://",
            f"copy the files {copy}, and read {goal}/{name}",
        )

    def _placeholder(self, where: str) -> Problem:
        return error(
            "placeholder-bucket",
            where,
            f"{PLACEHOLDER_BUCKET!r} is a placeholder",
            "write your own bucket, as 'gcloud storage buckets list' tells it",
        )

    @property
    def _goal(self) -> str:
        """The folder of a bucket where the data may lie."""
        job = self.order.job
        return f"{job.bucket or 'gs://BUCKET'}/{job.name}/data"

    def _outside(self, path: str, where: str) -> Found:
        files = _matching(Path("/"), path[1:])
        if not files and path.startswith(_MADE_THERE):
            return Found(None)
        if not files and not path.startswith(HOMES) and not self._is_plain:
            return Found(None)  # the base image may bring it
        if self.around.own_dockerfile:
            return Found(files or None)
        return Found(files or None, self._on_this_machine(path, where))

    @property
    def _is_plain(self) -> bool:
        return self.around.is_plain or self.around.tensorflow_tag is not None

    def _in_project(self, path: str, pattern: str, where: str) -> Found:
        folder = self.order.folder
        there = _matching(folder, path)
        files = tuple(file for file in there if self._is_let_in(file))
        if files or self.around.own_dockerfile:
            return Found(files or there or None)
        if there:
            return Found(there, self._not_in_image(path, there, where))
        return Found(None, self._missing(path, pattern, where))

    def _is_let_in(self, file: Path) -> bool:
        path = file.relative_to(self.order.folder)
        if path.as_posix() in self.let_in:
            return True
        # Where a folder is a link, the link is let in and what it leads to, by its own name.
        real = Path(os.path.realpath(file))
        folder = Path(os.path.realpath(self.order.folder))
        return (
            any(parent.as_posix() in self.let_in for parent in path.parents)
            and real.is_relative_to(folder)
            and real.relative_to(folder).as_posix() in self.let_in
        )

    def _on_this_machine(self, path: str, where: str) -> Problem:
        goal, name = self._goal, _name_of(path)
        copied = f'"{path}"' if " " in path else path  # for a shell to find what ~ and * stand for
        return error(
            "data-on-this-machine",
            where,
            f"{path} is a path of this machine, which the container does not have",
            f"copy the files with 'gcloud storage cp {copied} {goal}/', and read {goal}/{name}",
        )

    def _not_in_image(self, path: str, there: tuple[Path, ...], where: str) -> Problem:
        first = there[0].relative_to(self.order.folder)
        count = f"{len(there):,} files match" if len(there) > 1 else "a file matches"
        wanted = _folder_of(path) or first.as_posix()
        if self.around.own_ignore or _covers(self.order.job.image.include, first):
            remedy = f"let them in with a line !{wanted} at the end of .dockerignore"
        else:
            include = ", ".join([*self.order.job.image.include, wanted])
            remedy = f"say image.include: [{include}] in distlaunch.yaml"
        return error(
            "data-not-in-image",
            where,
            f"{count} {path} in the project, and none of them goes into the image",
            f"{remedy}, or read them from a bucket, as gs://BUCKET/{path}",
        )

    def _missing(self, path: str, pattern: str, where: str) -> Problem:
        if pattern.startswith(("gs:/", "s3:/")):
            scheme, rest = pattern.split(":/", 1)
            what = f"{pattern} is no URL: a path of pathlib's has no double slash"
            remedy = f"write it as a text: {scheme}://{rest}"
        elif _is_folder(self.order.folder / path):
            what = f"{path} is a folder, and Records takes a pattern of files"
            remedy = f"write {path}/*.tfrecord, or whatever its files are called"
        else:
            what, remedy = f"no file matches {path}", self._nearest(path)
        return error("data-missing", where, what, remedy)

    def _nearest(self, path: str) -> str:
        """Say what there is in the folder where files were looked for."""
        folder = _folder_of(path)
        names = sorted(
            file.name for file in _matching(self.order.folder, f"{glob.escape(folder or '.')}/*")
        )
        place = folder or "the project's folder"
        if not names or not folder:
            return f"put the data into {place}, or mend the pattern"
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        return f"mend the pattern, as in {place} there is {names[0]}{more}"


def _matching(folder: Path, pattern: str) -> tuple[Path, ...]:
    """Return the files of a pattern, in order; hidden ones are not data."""
    if pattern in {"", "."}:
        return ()
    try:
        paths = [path for path in folder.glob(_STARS.sub("*", pattern)) if path.is_file()]
    except (OSError, ValueError):  # no name of a file's, or none that may be seen
        return ()
    return tuple(path for path in sorted(paths) if not path.name.startswith("."))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _name_of(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # no name of a file's, or none that may be seen
        return False


def _folder_of(pattern: str) -> str:
    """Return the folder above all files of a pattern; nothing where that is the project's own."""
    parts = pattern.split("/")[:-1]
    plain = next((n for n, part in enumerate(parts) if _SOME.search(part)), len(parts))
    return "/".join(parts[:plain])


def _covers(include: Collection[str], file: Path) -> bool:
    return any(file.is_relative_to(posixpath.normpath(path)) for path in include)
