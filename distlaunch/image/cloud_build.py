"""Google's Cloud Build as the builder of images, which it also pushes.

https://cloud.google.com/build/docs/api/reference/rest/v1/projects.locations.builds documents the
resource. The source and the log are in the job's bucket: the source until the build has ended.
"""

from __future__ import annotations

import io
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distlaunch.engines.vertex import storage
from distlaunch.engines.vertex.client import Retries
from distlaunch.errors import Diagnostic, GoogleError, ImageError, RetryableError
from distlaunch.events import Notice
from distlaunch.image.layers import LayerWriter, scratch_folder
from distlaunch.image.reference import Reference
from distlaunch.refusals import grant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from typing_extensions import Self

    from distlaunch.engines.vertex.client import Session
    from distlaunch.events import Event
    from distlaunch.image.context import ContextFile
    from distlaunch.image.dockerfile_parser import Dockerfile
    from distlaunch.job.model import Job

API = "cloudbuild.googleapis.com"

_FOLDER = ".distlaunch-builds"  # in the job's bucket
_SOURCE = ".tar.gz"  # with the files of a build
_TIMEOUT = 3600  # seconds for a build; TensorFlow with CUDA takes about ten minutes
_INTERVAL = 3.0  # seconds between two looks at a build
_UNFINISHED = ("PENDING", "QUEUED", "WORKING")
_REMEDIES = {
    "TIMEOUT": f"a build has {_TIMEOUT // 60} minutes: use a base image that has the largest "
    "requirements",
    "EXPIRED": "other builds ran for too long: try again, or request more concurrent builds at "
    "https://console.cloud.google.com/iam-admin/quotas?service=cloudbuild.googleapis.com",
}
# The roles that the build's account needs, by Build.FailureInfo.FailureType.
_ROLES = {
    "PUSH_NOT_AUTHORIZED": "roles/artifactregistry.writer",
    "PUSH_FAILED": "roles/artifactregistry.writer",
    "FETCH_SOURCE_FAILED": "roles/storage.objectAdmin",
    "LOGGING_FAILURE": "roles/storage.objectAdmin",
}


@dataclass(frozen=True, slots=True)
class CloudBuild:
    """Builds images of linux/amd64 in a project and region; `bucket` is ``gs://…``, of the job."""

    session: Session
    project: str
    region: str
    bucket: str
    show: Callable[[Event], None] = lambda _: None
    progress: Callable[[str], None] = lambda _: None

    @classmethod
    def of(cls, job: Job, session: Session) -> Self:
        """Return that of a job with all required settings."""
        return cls(session, job.project or "", job.region or "", job.bucket or "")

    def build(
        self, dockerfile: Dockerfile, folder: Path, files: Iterable[ContextFile], tag: Reference
    ) -> None:
        """Build an image of files of a folder, and push it.

        A build of this tag that has not ended is followed in place of a new one, e.g. after a lost
        response or a killed command: the tag is a hash of all that is built.
        """
        uri = f"{self.bucket}/{_FOLDER}/{tag.tag}-{secrets.token_hex(4)}{_SOURCE}"
        build = self._find(tag)
        if build:
            uri = _source(build)
        try:
            if build is None:
                self._remove_old()
                self._upload(dockerfile, folder, files, uri)
                # Another command may have created one in the meantime.
                build = self._find(tag) or self._create(dockerfile, uri, tag)
            self._follow(build)
        except KeyboardInterrupt:
            build = build or self._find(tag)
            if build and _source(build) == uri:
                self._cancel(build)
            raise
        except RetryableError as error:
            again = "run the same command again, which follows the build if it is still running"
            raise error.with_text(f"{error}; {again}") from error
        finally:
            if build is None or build["status"] not in _UNFINISHED or _source(build) != uri:
                with suppress(GoogleError):  # it may never have been there
                    storage.delete(self.session, uri)

    def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        parent = f"projects/{self.project}/locations/{self.region}"
        return self.session.call(method, "cloudbuild", f"{parent}/{path}", **options)

    def _find(self, tag: Reference) -> dict[str, Any] | None:
        """Return a build of an image that has not ended, None if there is none."""
        listed = self._call("GET", "builds", params={"filter": f'tags="{tag.tag}"'})
        for build in listed.get("builds") or ():
            if build.get("images") == [str(tag)] and build.get("status") in _UNFINISHED:
                return dict(build)
        return None

    def _remove_old(self) -> None:
        """Remove what killed commands have left: no build of theirs can still run."""
        oldest = time.time() - 2 * _TIMEOUT
        with suppress(GoogleError):  # who may not list the bucket leaves it
            for blob in storage.list_files(self.session, f"{self.bucket}/{_FOLDER}"):
                is_old = blob.updated is not None and blob.updated.timestamp() < oldest
                if is_old and blob.name.endswith(_SOURCE):
                    storage.delete(self.session, f"gs://{blob.bucket.name}/{blob.name}")

    def _upload(
        self, dockerfile: Dockerfile, folder: Path, files: Iterable[ContextFile], uri: str
    ) -> None:
        """Upload what the `docker` command would build from."""
        with scratch_folder() as scratch:
            archive = scratch / "source.tar.gz"
            with LayerWriter(archive) as tar:
                for name, text in (
                    ("Dockerfile", dockerfile.text),
                    ("Dockerfile.dockerignore", ""),
                ):
                    data = text.encode()
                    tar.add_file(name, 0o644, len(data), io.BytesIO(data))
                tar.add_folder("context", 0o755)
                for file in files:
                    tar.add_folders(f"context/{file.path}")
                    tar.add_entry(f"context/{file.path}", file, folder)
                size = tar.finish("").size
            self.show(Notice(f"uploading {size:,} bytes to {uri} for Cloud Build"))
            storage.upload(self.session, archive, uri)

    def _create(self, dockerfile: Dockerfile, uri: str, tag: Reference) -> dict[str, Any]:
        """Create a build; after a lost response it is looked up before a retry."""
        from distlaunch.image.docker import BUILD_ENV, build_words

        bucket, _, name = uri.removeprefix("gs://").partition("/")
        env = [f"{key}={value}" for key, value in {**BUILD_ENV, "DOCKER_BUILDKIT": "1"}.items()]
        # A single $ would be one of Cloud Build's substitutions.
        words = [word.replace("$", "$$") for word in build_words(dockerfile, tag)]
        body = {
            "source": {"storageSource": {"bucket": bucket, "object": name}},
            "steps": [{"name": "gcr.io/cloud-builders/docker", "env": env, "args": words}],
            "images": [str(tag)],
            "tags": ["distlaunch", tag.tag],
            "timeout": f"{_TIMEOUT}s",
            "logsBucket": f"{self.bucket}/{_FOLDER}",
            "options": {"logging": "GCS_ONLY", "logStreamingOption": "STREAM_ON"},
        }
        retries = Retries(self.session)
        while True:
            try:
                # Not retried by the client: if the response was lost, the build may exist.
                operation = self._call("POST", "builds", body=body, retry_deadline=0)
            except RetryableError as error:  # noqa: PERF203 - each attempt may fail
                found = self._find(tag) if error.may_have_been_processed else None
                if found:
                    return found
                retries.wait(error)
            else:
                created: dict[str, Any] = operation["metadata"]["build"]
                return created

    def _follow(self, build: dict[str, Any]) -> None:
        """Show a build's states and log until its end; ImageError is raised if it failed.

        `build` is updated.
        """
        from distlaunch.image.docker import LAST_LINES, failure_reason

        lines, status = ["no output"], ""
        log = f"{self.bucket}/{_FOLDER}/log-{build['id']}.txt"
        text = f"Cloud Build {build['id']}, billed by build minute: {build.get('logUrl')}"
        self.show(Notice(text))
        while True:
            if build["status"] != status:
                status = build["status"]
                self.show(Notice(f"Cloud Build: {status}"))
            with suppress(GoogleError):  # who may not read it has its URL
                content = storage.read(self.session, log) or b""
                lines = content.decode(errors="replace").split("\n")[:-1] or lines
            self.progress(lines[-1])
            if status not in _UNFINISHED:
                break
            self.session.sleep(_INTERVAL)
            build.update(self._call("GET", f"builds/{build['id']}"))
        self.progress("")
        if status != "SUCCESS":
            tail = lines[-LAST_LINES:]
            self.show(Notice("\n".join(["last lines of Cloud Build:", *tail]), "error"))
            raise ImageError(problems=[self._failure(build, failure_reason(tail))])

    def _failure(self, build: Mapping[str, Any], reason: str) -> Diagnostic:
        """Return the reason and the remedy for a build that has not succeeded."""
        info, status = build.get("failureInfo") or {}, build["status"]
        kind, remedy = str(info.get("type", "")), _REMEDIES.get(status, "")
        if status != "FAILURE":
            reason = f"{status} {build.get('statusDetail', '')}".strip()
        if role := _ROLES.get(kind):
            reason = f"{kind}: {info.get('detail') or reason}"
            target = Reference.parse(build["images"][0]).google_repository
            project = target.project if target and kind.startswith("PUSH") else self.project
            command = f"projects add-iam-policy-binding {project}"
            remedy = grant(command, f"serviceAccount:{self._account(build)}", role)
        what = f"Cloud Build {build['id']} failed ({reason}); its log is at {build.get('logUrl')}"
        return Diagnostic(what, remedy)

    def _account(self, build: Mapping[str, Any]) -> str:
        """Return the account that a build runs as, by default the project's for builds."""
        name = build.get("serviceAccount")
        with suppress(GoogleError):
            name = name or self._call("GET", "defaultServiceAccount").get("serviceAccountEmail")
        return str(name or "ACCOUNT_OF_CLOUD_BUILD").rpartition("/")[2]

    def _cancel(self, build: dict[str, Any]) -> None:
        """Cancel a build, or log how to do that."""
        try:
            body = {"projectId": self.project, "id": build["id"]}
            self._call("POST", f"builds/{build['id']}:cancel", body=body, retry_deadline=5)
        except GoogleError as error:
            place = f"--region={self.region} --project={self.project}"
            remedy = f"run 'gcloud builds cancel {build['id']} {place}'"
            self.show(Notice(f"the build is not cancelled: {error}; {remedy}", "warning"))
        else:
            build["status"] = "CANCELLED"
            self.show(Notice(f"cancelled Cloud Build {build['id']}"))


def _source(build: Mapping[str, Any]) -> str:
    """Return the URI of the files that a build is of."""
    return "gs://{bucket}/{object}".format(**build["source"]["storageSource"])


def secrets_refusal(mounted: Iterable[str]) -> Diagnostic:
    """Return why Cloud Build does not build an image whose steps mount secrets, by their ids."""
    return Diagnostic(
        f"pip's settings of this machine ({', '.join(mounted)}) are secrets, and are not sent to "
        "Cloud Build",
        "build with Docker (--set image.builder=auto), or name a public index in the requirements "
        "and run with PIP_CONFIG_FILE=/dev/null and without variables PIP_…",
        "image.builder",
    )
