"""Records of launches from a project's folder: ``.distlaunch/jobs/LAUNCH_ID.json``.

A record is written before the call that creates the job, and stays *open* until the command that
launched it ends in order, so that an interrupted launch is found and resumed.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from distlaunch import files
from distlaunch.errors import DistlaunchError, did_you_mean, os_reason
from distlaunch.paths import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from distlaunch.job.vertex import Collection
    from distlaunch.ui.events import ShowMessage

_MAX_NAME = 40  # characters of a job's name in its launch id, which is the value of a label


@dataclass(frozen=True, slots=True)
class Record:
    """A launch; the fields are the keys of its file."""

    launch_id: str  # a label of the job, and part of its job folder's path
    name: str
    project: str
    region: str
    collection: Collection
    content: str  # a hash of what was launched and where
    request: Mapping[str, Any]  # without the values of variables
    image: str | None = None  # by digest; None if every pool names its own
    job_dir: str | None = None
    endpoint: str | None = None  # the URL that replaces Google's
    resource: str | None = None  # the job's resource name, once it is known
    is_open: bool = True  # the command that launched it has not ended in order
    is_moving: bool = False  # the command cancels the job to move it to another region
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
        self._folder = project / JOBS
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
        """Return the newest open launch with the same content, if any."""
        records = (record for record in self.all() if record.is_open and record.content == content)
        return next(records, None)

    def hint(self, name: str) -> str:
        """Return ``; did you mean …?`` for an id or name that no record has."""
        names = [name for record in self.all() for name in (record.launch_id, record.name)]
        return did_you_mean(name, names)

    def write(self, record: Record) -> None:
        """Write a record, and wait until it is on the disk; else DistlaunchError is raised."""
        path = self._folder / f"{record.launch_id}.json"
        text = json.dumps(asdict(record), indent=2, ensure_ascii=False) + "\n"
        try:
            self._create_folder()
            files.atomic_write(path, text, sync=True)
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
        except (AttributeError, OSError, TypeError, ValueError) as error:
            if self._show_message and path not in self._ignored:
                reason = getattr(error, "strerror", None) or error
                self._show_message(f"{path}: not a valid record ({reason}); ignored", "warning")
            self._ignored.add(path)
            return None

    def _create_folder(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        ignore_file = self._folder.parent / ".gitignore"
        if not ignore_file.exists():
            ignore_file.write_text("*\n")


def new_launch_id(name: str) -> str:
    """Return an id for a launch: the job's name, the time in UTC and four random characters."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{name[:_MAX_NAME].lower()}-{moment}-{secrets.token_hex(2)}"


def _read(path: Path) -> Record:
    """Return the record in a file; fields of a newer version are ignored."""
    content = json.loads(path.read_bytes())
    names = [item.name for item in fields(Record)]
    return Record(**{name: value for name, value in content.items() if name in names})


def _not_writable(path: Path, error: OSError) -> DistlaunchError:
    return DistlaunchError(f"{path}: cannot be written ({os_reason(error)}); nothing was submitted")
