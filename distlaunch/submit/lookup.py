"""The engine of a launch or a command, and jobs by their ids and names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlaunch.engines.vertex import auth
from distlaunch.engines.vertex.client import connect, display_endpoint, is_loopback
from distlaunch.engines.vertex.engine import VertexEngine
from distlaunch.engines.vertex.jobs import parse_name
from distlaunch.errors import DistlaunchError, EngineError
from distlaunch.platforms import require_posix
from distlaunch.submit.records import Records

if TYPE_CHECKING:
    from distlaunch.engines.api import Engine, JobStatus
    from distlaunch.events import ShowMessage
    from distlaunch.job.launch import LaunchRequest
    from distlaunch.submit.records import Record


@dataclass(frozen=True, slots=True)
class LocatedJob:
    """A job, its engine, and its record if this folder has one."""

    engine: Engine
    job: JobStatus
    record: Record | None = None

    @property
    def commit(self) -> str | None:
        """The commit of the project when the job was submitted, None if it is not known."""
        return self.record.commit if self.record else None


@dataclass(frozen=True, slots=True)
class JobLocator:
    """Finds jobs in the place of the command line, the record or distlaunch.yaml.

    None is for those of the job's record, distlaunch.yaml or gcloud.
    """

    folder: Path  # the project's, with its records and distlaunch.yaml
    endpoint: str | None = None
    project: str | None = None
    region: str | None = None
    engine_name: str | None = None
    show_message: ShowMessage | None = None  # prints warnings and retries

    def engine(self, record: Record | None = None, name: str = "") -> Engine:
        """Return the engine of the command's jobs, that of a record or a job's name first."""
        settings = {} if record or name else _job_file_settings(self.folder)
        engine_name = (record and record.engine) or self.engine_name or settings.get("engine")
        if name:
            engine_name = "slurm" if name.startswith("/") else "vertex"
        if engine_name == "slurm":
            require_posix("engine: slurm")
            return self._slurm_engine(record, name)
        return self._vertex_engine(record, name)

    def _slurm_engine(self, record: Record | None, name: str) -> Engine:
        from distlaunch.engines.slurm.engine import SlurmEngine

        settings = _job_file_settings(self.folder).get("slurm")
        in_file = settings.get("folder") if isinstance(settings, dict) else None
        of_name = str(Path(name).parents[1]) if name.count("/") > 2 else None
        folder = (record and record.folder) or of_name or in_file
        if not isinstance(folder, str):
            from distlaunch.checks.required_fields import no_slurm_folder

            raise DistlaunchError(no_slurm_folder().line)
        return SlurmEngine(Path(folder), self.folder)

    def _vertex_engine(self, record: Record | None, name: str) -> VertexEngine:
        parts = parse_name(name) if name else None
        project = self.project or (record and record.project) or (parts and parts.project)
        region = (parts and parts.region) or (record and record.region) or self.region
        settings = {} if project and region else _job_file_settings(self.folder)
        project = project or _text(settings, "project") or auth.default_project()
        region = region or _text(settings, "region") or auth.default_region()
        if not project or not region:
            from distlaunch.checks.required_fields import no_project, no_region

            raise DistlaunchError((no_region() if project else no_project()).line)
        endpoint = self.endpoint or (self._recorded_endpoint(record) if record else None)
        session = connect(endpoint, project=project, show_message=self.show_message)
        return VertexEngine(session, project, region)

    def find(self, name: str | None) -> LocatedJob:
        """Return the job of an id or name; by default the newest of the folder's records."""
        records = Records(self.folder, self.show_message)
        record = records.find(name, project=self.project, region=self.region)
        if record:
            return self._find_recorded(record)
        if name is None:
            raise DistlaunchError(
                "no jobs submitted from this directory; pass a job ID (see 'distlaunch list')"
            )
        if "/" in name:
            engine = self.engine(name=name)
            return LocatedJob(engine, engine.get(name))
        try:
            engine = self.engine()
        except EngineError as error:
            unknown = f"no job {name!r} was submitted from this directory{records.hint(name)}"
            raise error.with_text(f"{unknown}, and no other was searched: {error}") from None
        found = engine.search(name)
        if not found:
            raise DistlaunchError(
                f"no job {name!r} in {engine.location}{records.hint(name)}; see 'distlaunch list'"
            )
        return LocatedJob(engine, found[-1])

    def _recorded_endpoint(self, record: Record) -> str | None:
        """Return the endpoint of a job's record, which is trusted only on this machine.

        A record is a file of the project's folder and may come from anyone, and credentials are
        sent to the endpoint.
        """
        endpoint = record.endpoint
        if endpoint and not is_loopback(endpoint):
            raise DistlaunchError(
                f"{record.launch_id}: its record names the endpoint {endpoint}, and credentials "
                "are sent to a remote endpoint only if it is given on the command line; if you "
                f"trust it, pass --endpoint {endpoint}"
            )
        if endpoint and self.show_message:
            shown = display_endpoint(endpoint)
            self.show_message(f"using endpoint {shown}, where {record.launch_id} was submitted")
        return endpoint

    def _find_recorded(self, record: Record) -> LocatedJob:
        engine = self.engine(record, record.resource or "")
        if record.resource:
            return LocatedJob(engine, engine.get(record.resource), record)
        job = engine.find(record.launch_id, record.collection)
        if job is None:
            problem = (
                "the job was refused; run 'distlaunch submit' again"
                if record.was_refused
                else "the launch was interrupted before its job was created; run 'distlaunch "
                "submit' to finish it"
            )
            raise DistlaunchError(f"{record.launch_id}: {problem}")
        return LocatedJob(engine, job, record)


def engine_of(launch: LaunchRequest, show_message: ShowMessage) -> Engine:
    """Return the engine that a launch's job runs on; EngineError is raised without credentials."""
    job = launch.job
    if job.is_on_slurm:
        from distlaunch.engines.slurm.engine import SlurmEngine

        return SlurmEngine(Path(job.slurm.folder or ""), launch.folder)
    session = connect(launch.endpoint, project=job.project, show_message=show_message)
    return VertexEngine(session, str(job.project), str(job.region))


def _job_file_settings(folder: Path) -> dict[str, Any]:
    """Return the data of distlaunch.yaml, which may be invalid; none if it cannot be read."""
    from distlaunch.job.yaml_document import read_document

    try:
        return dict(read_document(folder / "distlaunch.yaml").data)
    except DistlaunchError:
        return {}


def _text(settings: dict[str, Any], name: str) -> str | None:
    value = settings.get(name)
    return value if isinstance(value, str) else None
