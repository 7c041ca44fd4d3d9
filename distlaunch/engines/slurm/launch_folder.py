"""The folder of a launch on Slurm, ``FOLDER/NAME/LAUNCH_ID``, and its files.

All nodes share it. Slurm forgets a job some minutes after its end, so all that is known of one
later is here.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch import files
from distlaunch.engines.slurm.ownership import is_own_folder, make_own_folder
from distlaunch.errors import DistlaunchError, os_reason
from distlaunch.task_files import AttemptFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from distlaunch.engines.code_files import CodeFiles


@dataclass(frozen=True, slots=True)
class LaunchFolder:
    """The folder of a launch."""

    path: Path

    @property
    def is_own(self) -> bool:
        """Whether it is a launch of the user who runs this: other users may have written others."""
        return is_own_folder(self.path.parent) and is_own_folder(self.path)

    @property
    def code(self) -> Path:
        """The project's files and the trainer package."""
        return self.path / "code"

    @property
    def script(self) -> Path:
        """The batch script."""
        return self.path / "batch.sh"

    @property
    def slurm_log(self) -> Path:
        """What the batch script and srun print."""
        return self.path / "task-logs" / "slurm.log"

    @property
    def end_file(self) -> Path:
        """How the job ended; the batch script writes it."""
        return self.path / "end.json"

    @property
    def _request_file(self) -> Path:
        return self.path / "launch.json"

    @property
    def _cancelled_file(self) -> Path:
        return self.path / "cancelled"

    @property
    def _job_link(self) -> Path:
        """A symlink to the number of the job: the first of two jobs that make it runs."""
        return self.path / "job"

    def attempt(self, number: int) -> AttemptFolder:
        """Return the folder of an attempt, counted from 1: Slurm may requeue a job."""
        return AttemptFolder(self.path / "task-logs" / f"attempt-{number}")

    def attempts(self) -> int:
        """Return how many attempts have begun."""
        number = 0
        while self.attempt(number + 1).path.is_dir():
            number += 1
        return number

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Create the folder, and make other commands for this launch wait.

        The file descriptor is that of the lock. SlurmRefused is raised if the folder is not of this
        user alone, DistlaunchError if it cannot be written.
        """
        make_own_folder(self.path)
        with ExitStack() as held:
            with self._writing():
                descriptor = held.enter_context(files.lock(self.path / ".lock", wait=True))
            yield descriptor

    def write(self, request: Mapping[str, Any], script: str, code: CodeFiles) -> None:
        """Write what the job needs; the request and the script may have secrets."""
        with self._writing():
            self.slurm_log.parent.mkdir(exist_ok=True)
            # Renamed when it is whole: a job must not run half a copy.
            part = self.code.with_name("code.part")
            shutil.rmtree(part, ignore_errors=True)
            code.copy_to(part)
            shutil.rmtree(self.code, ignore_errors=True)
            part.rename(self.code)
            files.atomic_write(self.script, script, is_private=True)
            files.atomic_write(self._request_file, json.dumps(request), is_private=True)

    def read_request(self) -> dict[str, Any] | None:
        """Return what was launched, None if this is no launch or not readable."""
        return _read(self._request_file)

    def read_end(self) -> dict[str, Any] | None:
        """Return how the job ended, None if it has not written that."""
        return _read(self.end_file)

    def write_end(self, end: Mapping[str, Any]) -> None:
        """Write how the job ended, where the job could not."""
        with suppress(OSError):
            files.atomic_write(self.end_file, json.dumps(end))

    @property
    def job_number(self) -> str | None:
        """The number of the job, None if it is not known to have one."""
        try:
            return os.readlink(self._job_link)  # noqa: PTH115 - it is no path
        except OSError:
            return None

    def claim(self, number: str) -> str:
        """Note the number of the job, and return that of the first one."""
        # A symlink is created once, also where there are no locks: submit and the job may both try.
        with self._writing(), suppress(FileExistsError):
            self._job_link.symlink_to(number)
        return self.job_number or number

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled_file.exists()

    def note_cancelled(self) -> None:
        """Note that the user cancels the job."""
        with suppress(OSError):
            self._cancelled_file.touch()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise DistlaunchError(
                f"{problem.filename or self.path}: cannot be written ({os_reason(problem)})",
                remedy="set slurm.folder to a folder of yours that all nodes share",
            ) from None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return files.read_object(path)
    except (OSError, ValueError):
        return None
