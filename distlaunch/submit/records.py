"""Records of launches from a project's folder: ``.distlaunch/jobs/LAUNCH_ID.json``.

A record is written before the call that creates the job, and stays *open* until its job has ended
or the user has left it running, so that an interrupted launch is found and resumed. A launch that
is moved to other machines or another region has a record for each of its jobs.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from distlaunch import files
from distlaunch.errors import DistlaunchError, did_you_mean, os_reason
from distlaunch.paths import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from distlaunch.events import ShowMessage

_TYPES = {"str": str, "bool": bool, "int": int, "Mapping": dict}  # by the words of a hint


@dataclass(frozen=True, slots=True)
class Record:
    """A launch; the fields are the keys of its file."""

    launch_id: str  # a label of the job, and part of its job folder's path
    name: str
    project: str
    region: str
    collection: str  # of Google's API; empty for other engines
    content: str  # a hash of what was launched and where
    request: Mapping[str, Any]  # without the values of variables
    image: str | None = None  # by digest; None if every pool names its own
    job_dir: str | None = None
    engine: str = "vertex"
    folder: str | None = None  # slurm.folder
    endpoint: str | None = None  # the URL that replaces Google's
    resource: str | None = None  # the engine's name of the job, once it is known
    is_open: bool = True  # the job may be alive, and the user has not left it
    is_moving: bool = False  # distlaunch cancels the job to move it
    is_cancelled: bool = False  # the user has cancelled the job, so that it is not moved
    moved_from: str | None = None  # the launch id of the job before
    choice: int = 0  # which of the launch's machines and regions the job is on
    commit: str | None = None  # of the project's folder
    versions: Mapping[str, str] = field(default_factory=dict)
    time: str = ""  # UTC, such as 2026-11-21T16:55:00.123456Z

    @property
    def was_refused(self) -> bool:
        """Whether the launch ended without a job."""
        return self.resource is None and not self.is_open

    def matches(self, name: str) -> bool:
        """Whether this is an id or a name of the job, distlaunch's or Google's."""
        resource = self.resource or ""
        return name in (self.launch_id, self.name, resource, resource.rpartition("/")[2])


class Records:
    """The launches from one project's folder; files that are not valid records are ignored."""

    def __init__(self, project: Path, show_message: ShowMessage | None = None) -> None:
        self._project, self._folder = project, project / JOBS
        self._show_message = show_message
        self._ignored: set[Path] = set()

    def all(self) -> list[Record]:
        """Return all records, the newest first."""
        records = filter(None, map(self._read_valid, sorted(self._folder.glob("*.json"))))
        return sorted(records, key=lambda record: (record.time, record.launch_id), reverse=True)

    def find(
        self, name: str | None, *, project: str | None = None, region: str | None = None
    ) -> Record | None:
        """Return the newest record of an id or name, by default of any job that was created."""
        for record in self.all():
            is_requested = not record.was_refused if name is None else record.matches(name)
            is_in_place = project in (None, record.project) and region in (None, record.region)
            if is_requested and is_in_place:
                return record
        return None

    def find_unfinished(self, content: str) -> Record | None:
        """Return the newest open launch with the same content that was not moved, if any."""
        records = [record for record in self.all() if record.content == content]
        moved = {record.moved_from for record in records}
        unfinished = (each for each in records if each.is_open and each.launch_id not in moved)
        return next(unfinished, None)

    def find_moved(self, launch_id: str) -> Record | None:
        """Return the launch to which a launch was moved, None if it was not."""
        return next((record for record in self.all() if record.moved_from == launch_id), None)

    def current(self, record: Record) -> Record:
        """Return a record as it is on the disk now; other commands change it too."""
        return self._read_valid(self._path(record)) or record

    def update(self, record: Record, **changes: Any) -> Record:
        """Change fields of a record on the disk; where another command may, hold the lock."""
        changed = replace(self.current(record), **changes)
        self.write(changed)
        return changed

    def note_cancelled(self, record: Record) -> None:
        """Note that the user cancels a job, before the call, so that no command moves it.

        In a folder that cannot be written, no command moves jobs.
        """
        with suppress(DistlaunchError), self.lock():
            self.update(record, is_cancelled=True)

    def hint(self, name: str) -> str:
        """Return ``; did you mean …?`` for an id or name that no record has."""
        names = [name for record in self.all() for name in (record.launch_id, record.name)]
        return did_you_mean(name, names)

    def write(self, record: Record) -> None:
        """Write a record, and wait until it is on the disk; else DistlaunchError is raised."""
        path = self._path(record)
        text = json.dumps(asdict(record), indent=2, ensure_ascii=False) + "\n"
        try:
            self._create_folder()
            # On the disk before the job is created: a crash must not forget a launch.
            files.atomic_write(path, text, sync=True, is_private=True)
        except OSError as error:
            raise _not_writable(path, error) from None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Make other launches from this folder wait."""
        with ExitStack() as stack:
            try:
                self._create_folder()
                stack.enter_context(files.lock(self._folder / ".lock", wait=True))
            except OSError as error:
                raise _not_writable(self._folder, error) from None
            yield

    def _read_valid(self, path: Path) -> Record | None:
        """Return the record in a file, or warn that it is ignored."""
        try:
            return _read(path)
        except (OSError, ValueError) as error:
            if self._show_message and path not in self._ignored:
                reason = getattr(error, "strerror", None) or error
                self._show_message(f"{path}: not a valid record ({reason}); ignored", "warning")
            self._ignored.add(path)
            return None

    def _path(self, record: Record) -> Path:
        return self._folder / f"{record.launch_id}.json"

    def _create_folder(self) -> None:
        files.make_folder(self._folder, below=self._project)
        ignore_file = self._folder.parent / ".gitignore"
        if not os.path.lexists(ignore_file):
            ignore_file.write_bytes(b"*\n")


def _read(path: Path) -> Record:
    """Return the record in a file; fields of a newer version are ignored.

    OSError or ValueError is raised if it is not a valid record of this name.
    """
    content = files.read_object(path)
    values = {item.name: content[item.name] for item in fields(Record) if item.name in content}
    for item in fields(Record):
        if item.name in values and not _has_type(values[item.name], str(item.type)):
            raise ValueError(f"{item.name} is not of type {item.type}")
    try:
        record = Record(**values)
    except TypeError as error:  # a field is missing
        raise ValueError(str(error)) from None
    if record.choice < 0:
        raise ValueError(f"the choice is {record.choice}")
    if record.launch_id != path.stem:
        raise ValueError(f"the launch id is {record.launch_id}")
    return record


def _has_type(value: object, hint: str) -> bool:
    """Whether a value has the type of a field's hint, such as ``str | None``."""
    name, _, none = hint.partition(" | ")
    return (value is None and bool(none)) or isinstance(value, _TYPES[name.partition("[")[0]])


def _not_writable(path: Path, error: OSError) -> DistlaunchError:
    return DistlaunchError(f"{path}: cannot be written ({os_reason(error)})")
