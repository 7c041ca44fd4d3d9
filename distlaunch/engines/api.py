"""What a place is where jobs run: an `Engine`, and a job there as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from distlaunch import files, summary, timestamps

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from distlaunch.engines.code_files import CodeFiles
    from distlaunch.events import Event
    from distlaunch.failure_reasons import FailureReport
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.job.trial import Study, Trial
    from distlaunch.job.vertex.view import JobRequest


class JobState(str, Enum):
    """The state of a job, in Vertex AI's words without the prefix ``JOB_STATE_``."""

    UNSPECIFIED = "UNSPECIFIED"
    QUEUED = "QUEUED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"
    PAUSED = "PAUSED"
    EXPIRED = "EXPIRED"
    UPDATING = "UPDATING"
    PARTIALLY_SUCCEEDED = "PARTIALLY_SUCCEEDED"

    __str__ = str.__str__

    @property
    def is_terminal(self) -> bool:
        """Whether a job in this state has ended."""
        running = ("RUNNING", "CANCELLING", "PAUSED", "UPDATING")
        return not self.is_before_running and self.value not in running

    @property
    def is_before_running(self) -> bool:
        """Whether a job in this state has not started."""
        return self.value in ("UNSPECIFIED", "QUEUED", "PENDING")


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as its engine reports it; times are RFC 3339 in UTC."""

    id: str  # the launch id, or the engine's own of a job that distlaunch did not submit
    name: str  # the engine's, unique in it
    state: JobState
    request: JobRequest  # its machines and settings
    tasks: tuple[str, ...]  # the names of its tasks, the primary one first
    display_name: str | None = None
    created: str | None = None
    started: str | None = None
    ended: str | None = None
    updated: str | None = None  # when its state last changed
    error: str = ""  # the engine's reason in one line, where it has ended without success
    is_stockout: bool = False  # it has ended because there were no machines for it
    job_dir: str | None = None
    program: tuple[str, ...] = ()  # the command of the first task
    scheduling: Mapping[str, Any] = field(default_factory=dict)
    study: Study | None = None  # of a tuning job
    trials: tuple[Trial, ...] = ()
    console: str | None = None  # the URL of its page
    tensorboard: str | None = None  # likewise
    web_access: Mapping[str, str] = field(default_factory=dict)  # URIs of shells by running tasks
    resource: Mapping[str, Any] = field(default_factory=dict, repr=False)  # for its engine alone

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, with success or without."""
        return self.state.is_terminal

    def wait_seconds(self, now: str) -> float | None:
        """Return how long it has waited to start, until `now` if it still does."""
        end = self.ended if self.has_ended else now
        return timestamps.seconds_between(self.created, self.started or end)

    def run_seconds(self, now: str) -> float | None:
        """Return how long it has run, until `now` if it still runs; None if it has not started."""
        end = self.ended if self.has_ended else now
        return timestamps.seconds_between(self.started, end)


def read_summary(engine: Engine, job: JobStatus) -> dict[str, Any] | None:
    """Return the content of a job's ``summary.json``, None if there is none or it is damaged.

    DistlaunchError is raised if it cannot be read.
    """
    if job.job_dir is None:
        return None
    uri = f"{job.job_dir.rstrip('/')}/{summary.FILE_NAME}"
    try:
        return files.parse_object(engine.read_file(uri) or b"")
    except ValueError:
        return None


class Request(NamedTuple):
    """The request that creates a job."""

    name: str  # of the job, for people
    collection: str  # of Google's API; empty for other engines
    body: Mapping[str, Any]
    job_dir: str | None
    has_folder: bool = True  # it names a folder of this launch, in its arguments where nowhere else
    code: CodeFiles | None = None  # that are copied for the job


class Created(NamedTuple):
    """A job that an engine has."""

    job: JobStatus
    is_new: bool  # False if an earlier call created it
    duplicates: tuple[str, ...] = ()  # names of younger jobs that could not be cancelled


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Which part of a job's log to show."""

    tasks: tuple[str, ...] = ()  # such as worker:3; all if empty
    since: float | None = None  # seconds since 1970; None for the job's creation
    last: int | None = None  # how many of the entries that exist at the start; None for all
    pattern: re.Pattern[str] | None = None  # what a line has to contain
    severity: str = ""  # the lowest, such as WARNING; all if empty
    hide_noise: bool = False  # leave out the lines that TensorFlow writes in every job
    is_per_entry: bool = False  # each entry is an event with its time and severity
    needs_times: bool = False  # of lines


class Follower(Protocol):
    """A job's events until it has ended; iterating again after an interrupt resumes.

    Attributes
    ----------
    status : JobStatus
        The latest.
    is_stalled : bool
        Whether iterating has ended because the job did not start in time.
    """

    status: JobStatus
    is_stalled: bool

    def __iter__(self) -> Iterator[Event]: ...


class Engine(Protocol):
    """The jobs of one place: a project and region of Vertex AI, a folder on a Slurm cluster.

    A call raises EngineError if it is refused, or the engine cannot be reached; what `create`
    raises is documented there.
    """

    project: str
    region: str  # empty where there are none

    @property
    def endpoint(self) -> str | None:
        """The URL that replaces the engine's own."""

    @property
    def place(self) -> Mapping[str, Any]:
        """The fields of a record by which the engine is found again."""

    @property
    def location(self) -> str:
        """The place in words."""

    def in_region(self, region: str) -> Self:
        """Return the engine of another region."""

    @staticmethod
    def request(launch: LaunchRequest, launch_id: str, image: str | None) -> Request:
        """Return the request that creates a launch's job, with the id of the launch."""

    def request_again(
        self, job: JobStatus, overrides: Sequence[str], program_args: Sequence[str]
    ) -> Callable[[str], Request]:
        """Return a function that makes the request for a job like another one from a launch id."""

    def create(self, request: Request, *, may_exist: bool) -> Created:
        """Create a job once: if a response is lost, the job is looked up before a retry.

        Parameters
        ----------
        may_exist
            Whether an earlier command may have created the job, so that it is looked up first.

        Raises
        ------
        EngineError
            If it is refused (`created_nothing`: no earlier call can have created it either) or not
            reached: the job may exist.
        """

    def find(self, launch_id: str, collection: str) -> JobStatus | None:
        """Return the oldest job of a launch, None if none is listed."""

    def get(self, name: str) -> JobStatus:
        """Return a job by its name."""

    def search(self, name: str) -> list[JobStatus]:
        """Return the jobs of a launch id, a name or the engine's number, the newest last."""

    def newest(self, limit: int, *, all_jobs: bool) -> list[JobStatus]:
        """Return the newest jobs, the newest first; by default those of distlaunch."""

    def cancel(self, name: str) -> None:
        """Request the end of a job, which passes through CANCELLING."""

    def follow(
        self,
        job: JobStatus,
        selection: LogSelection | None,
        *,
        sleep: Callable[[float], None],
        max_wait: float | None = None,
    ) -> Follower:
        """Return a job's events: its states and, with a selection, the lines of its log.

        A job that has not started `max_wait` seconds after its creation is no longer followed.
        """

    def read_log(self, job: JobStatus, selection: LogSelection) -> Iterator[Event]:
        """Yield the lines and figures of a job's log that exist now."""

    def read_figures(self, job: JobStatus) -> dict[str, Any]:
        """Return the newest figures of each task, by its name."""

    def shell(self, job: JobStatus, task: str) -> str | tuple[str, ...]:
        """Return the URL of a shell in a running task, or the words of a command that opens one.

        EngineError is raised if there is none.
        """

    def find_failure(self, job: JobStatus) -> FailureReport | None:
        """Return the first failure of a job, None for one that has not failed."""

    def read_file(self, uri: str) -> bytes | None:
        """Return the content of a file of a job's folder, None if there is none."""
