"""What was launched from a project's folder: ``.distlaunch/jobs/LAUNCH_ID.json``.

A record is written before Google is asked to make the job and stays *open* until the command that
launched it has ended in order, so that a launch that was cut off is found again and finished.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from distlaunch.errors import DistlaunchError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distlaunch.job.vertex import Collection
    from distlaunch.ui.events import ShowMessage

JOBS = Path(".distlaunch", "jobs")  # in the project's folder
LAUNCH_LABEL = "distlaunch-launch"  # the label of a job that carries its launch's id
REDACTED = "(not recorded)"

_LONGEST_NAME = 40  # characters of a job's name in its launch's id, which is a label's value
_LOCK = ".lock"
_LARGEST = 16 << 20  # bytes of a record; Google takes no request that makes one as large
_TYPES: dict[str, type | tuple[type, ...]] = {  # by the annotations of a record's fields
    "Collection": str,
    "Mapping[str, Any]": dict,
    "Mapping[str, str]": dict,
    "bool": bool,
    "bool | None": (bool, NoneType),
    "str": str,
    "str | None": (str, NoneType),
}


@dataclass(frozen=True, slots=True)
class Record:
    """A launch.

    Parameters
    ----------
    launch_id
        Our own id of the job, which it carries as a label and in its job folder's path.
    name
        What the job is called.
    collection
        ``customJobs`` or ``hyperparameterTuningJobs``.
    content
        What was launched, as a hash: the same for the same code, job and place.
    request
        What Google was sent, without the values of variables.
    image
        The image by digest, None where every pool names its own.
    job_dir
        Where the job writes, if that is known.
    endpoint
        Who answered in Google's place, if anyone did.
    resource
        Google's name of the job, once that is known.
    is_open
        Whether the command that launched it has not ended in order.
    commit, is_dirty
        The commit of git's that the folder was at, and whether anything in it was changed since.
    versions
        Of distlaunch and what it speaks to Google with.
    time
        When it was launched, UTC, as ``2026-11-21T16:55:00Z``.
    """

    launch_id: str
    name: str
    project: str
    region: str
    collection: Collection
    content: str
    request: Mapping[str, Any]
    image: str | None = None
    job_dir: str | None = None
    endpoint: str | None = None
    resource: str | None = None
    is_open: bool = True
    commit: str | None = None
    is_dirty: bool | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    time: str = ""

    @property
    def was_refused(self) -> bool:
        """Whether no job came of it."""
        return self.resource is None and not self.is_open

    def submitted(self, resource: str) -> Record:
        """Return it as it is once Google has the job."""
        return replace(self, resource=resource)

    def closed(self) -> Record:
        """Return it as it is when the command that launched it has ended in order."""
        return replace(self, is_open=False)

    def is_called(self, which: str) -> bool:
        """Whether this is an id or a name of the job: ours, or Google's."""
        resource = self.resource or ""
        return which in (self.launch_id, self.name, resource, resource.rpartition("/")[2])


class Records:
    """The launches from one project's folder.

    Parameters
    ----------
    project
        The project's folder.
    tell
        Shows a warning once for each file that is not a valid record.
    """

    def __init__(self, project: Path, tell: ShowMessage | None = None) -> None:
        self._project = project
        self._folder = project / JOBS
        self._tell = tell
        self._ignored: set[Path] = set()

    def all(self) -> list[Record]:
        """Return all records, the newest first, without files that are not valid records."""
        found = filter(None, map(self._valid, sorted(self._folder.glob("*.json"))))
        return sorted(found, key=lambda record: (record.time, record.launch_id), reverse=True)

    def find(
        self, which: str | None, *, project: str | None = None, region: str | None = None
    ) -> Record | None:
        """Return the newest record of a job, None where there is none.

        Parameters
        ----------
        which
            Its id or name; None for the newest job of all, without launches that were refused.
        project, region
            Where it is, None for anywhere.
        """
        for record in self.all():
            is_there = project in (None, record.project) and region in (None, record.region)
            is_meant = not record.was_refused if which is None else record.is_called(which)
            if is_there and is_meant:
                return record
        return None

    def hint(self, which: str) -> str:
        """Return ``; did you mean …?`` for an id or name that no record has."""
        return did_you_mean(which, [name for each in self.all() for name in _names(each)])

    def open_with(self, content: str) -> Record | None:
        """Return the newest launch of the same content that has not come to its end, if any."""
        return next((each for each in self.all() if each.is_open and each.content == content), None)

    def write(self, record: Record) -> None:
        """Write a record so that it is there as a whole, whatever happens next.

        Raises
        ------
        DistlaunchError
            If it cannot be written.
        """
        text = json.dumps(asdict(record), indent=2, ensure_ascii=False) + "\n"
        path = self._folder / f"{record.launch_id}.json"
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            self._make_folder()
            with part.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as problem:
            with suppress(OSError):
                part.unlink()
            raise _cannot_be_written(path, problem) from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other launches from this folder out while this is entered; they wait.

        Raises
        ------
        DistlaunchError
            If nothing can be written there.
        """
        try:
            self._make_folder()
            lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as problem:
            raise _cannot_be_written(self._folder, problem) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _valid(self, path: Path) -> Record | None:
        """Return the record in a file, or warn that it is ignored."""
        try:
            return _read(path)
        except (OSError, RecursionError, ValueError) as problem:
            if self._tell and path not in self._ignored:
                reason = getattr(problem, "strerror", None) or problem
                self._tell(f"{path}: not a valid record ({reason}); ignored", "warning")
            self._ignored.add(path)
            return None

    def _make_folder(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        ignored = self._folder.parent / ".gitignore"
        if not ignored.exists():
            ignored.write_text("*\n")  # what lies there is no change of the project


def new_launch_id(name: str) -> str:
    """Return an id for a launch: the job's name, the time in UTC and four random characters."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{name[:_LONGEST_NAME].lower()}-{moment}-{secrets.token_hex(2)}"


def now() -> str:
    """Return this moment as records tell it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def redacted(request: Any) -> Any:
    """Return a request of Google's without the values of variables."""
    return map_env(request, _without_value)


def map_env(request: Any, change: Callable[[Any], Any]) -> Any:
    """Return a request of Google's with a function applied to each variable in it."""
    if isinstance(request, list):
        return [map_env(each, change) for each in request]
    if not isinstance(request, dict):
        return request
    return {
        key: [change(each) for each in value]
        if key == "env" and isinstance(value, list)
        else map_env(value, change)
        for key, value in request.items()
    }


def commit_of(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit that a folder is at and whether it was changed since; None if unknown.

    Changes inside of submodules are not looked for.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None, None
    return commit, _is_dirty(folder)


def _is_dirty(folder: Path) -> bool | None:
    """Run `git status` without the filters that git's configuration defines.

    The configuration of the folder may come from somebody else, and a filter is any program.
    """
    filters = _git(folder, "config", "--null", "--name-only", "--get-regexp", r"^filter\.") or ""
    keys = [key for key in filters.split("\0") if key]
    if any("=" in key for key in keys):
        return None  # -c takes no such key
    options = [word for key in keys for word in ("-c", f"{key}=")]
    words = ("status", "--porcelain", "--no-renames", "--ignore-submodules=all", "--", ".")
    changes = _git(folder, *options, *words)
    return None if changes is None else bool(changes)


def _git(folder: Path, *words: str) -> str | None:
    """Run git without the hooks, the fsmonitor and the remotes of the folder's configuration."""
    options = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
    # No write of the index, which runs a hook; no fetch of missing objects by any protocol.
    variables = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}
    try:
        done = subprocess.run(
            ["git", *options, "-C", folder, *words],
            capture_output=True,
            check=False,
            env=os.environ | variables,
        )
    except OSError:
        return None
    return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None


def _without_value(variable: Any) -> Any:
    return {**variable, "value": REDACTED} if isinstance(variable, dict) else variable


def _names(record: Record) -> list[str]:
    return [record.launch_id, record.name]


def _read(path: Path) -> Record:
    """Return the record in a file.

    Raises
    ------
    OSError, RecursionError, ValueError
        If it is not a small file with a valid record.
    """
    if not path.is_file():
        raise ValueError("not a regular file")
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"larger than {_LARGEST >> 20} MiB")
    record = _parse(json.loads(content))
    json.dumps(asdict(record), ensure_ascii=False).encode()  # else it could not be written again
    if record.launch_id != path.stem:
        raise ValueError(f"launch_id is not {path.stem}")
    return record


def _parse(found: Any) -> Record:
    """Return a record from JSON; fields that only a newer version knows are ignored."""
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - all that is wrong is one error
    known = {each.name: found[each.name] for each in fields(Record) if each.name in found}
    for each in fields(Record):
        if each.name not in known:
            if each.default is MISSING and each.default_factory is MISSING:
                raise ValueError(f"{each.name} is missing")
        elif not isinstance(known[each.name], _TYPES[str(each.type)]):
            raise ValueError(f"{each.name} is not of type {each.type}")
    return Record(**known)


def _cannot_be_written(path: Path, problem: OSError) -> DistlaunchError:
    why = (problem.strerror or str(problem)).lower()
    return DistlaunchError(f"{path}: cannot be written ({why}); nothing was submitted")
