"""What jobs need in Google Cloud: each resource is looked up, created and removed.

What setup creates has a mark with its own name: a label, or the description of the service account.
A copied label is no mark, and what is in another project is never created or removed. Roles have no
mark: setup grants them only to an account that it created, so that all of that account's are its
own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from distlaunch.checks.cloud.context import APIS, is_denied
from distlaunch.checks.cloud.resources import (
    account_path,
    bucket_path,
    multi_region,
    pushed_image,
    repository_path,
)
from distlaunch.engines.vertex import auth
from distlaunch.engines.vertex.iam_policy import change_role, has_role, read_policy
from distlaunch.errors import DistlaunchError, GoogleError
from distlaunch.refusals import CURRENT_ACCOUNT, DISABLED, grant
from distlaunch.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from distlaunch.engines.vertex.client import Session
    from distlaunch.job.model import Job

_LABEL, _DESCRIPTION = "created-by-distlaunch-setup", "created by distlaunch setup"
_APIS = sorted((*APIS, "artifactregistry", "cloudresourcemanager", "iam"))
_ACT_AS = "iam.serviceAccounts.actAs"
_OPERATION = 300.0  # seconds; enabling APIs takes up to some minutes
_PROPAGATION = 120.0  # seconds until an API that was enabled, or a new account, is known everywhere
_DAYS, _NEWEST = 90, 20
# Jobs run an image by its digest and all versions have tags, so that the age decides. It is far
# beyond the days that a job waits and runs, and the newest of each image are kept at any age.
_OLD = {"tagState": "ANY", "olderThan": f"{_DAYS * 86_400}s"}
_KEPT = {"keepCount": _NEWEST}
_CLEANUP = {
    "delete-old": {"id": "delete-old", "action": "DELETE", "condition": _OLD},
    "keep-newest": {"id": "keep-newest", "action": "KEEP", "mostRecentVersions": _KEPT},
}
_PRIVATE = {"uniformBucketLevelAccess": {"enabled": True}, "publicAccessPrevention": "enforced"}
_FREE = "free"
_ACCOUNT, _ACCOUNT_ADMIN = "service account", "roles/iam.serviceAccountAdmin"
_STORAGE = "storage.googleapis.com"


class Existing(NamedTuple):
    """A resource that exists."""

    is_made: bool  # by setup
    is_in_project: bool = True
    size: int | None = None  # bytes of a repository
    folders: Sequence[str] = ()  # of a bucket, and its files outside of them, up to a thousand


@dataclass(frozen=True, slots=True)
class CloudResource:
    """A resource of an API with the usual methods, which raise GoogleError."""

    kind: str
    name: str
    cost: str
    admin_role: str  # on the project, for those who create it
    service: str
    path: str
    parent: str = ""  # the path of the call that creates it, with these parameters and body
    params: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""  # printed if it is created

    def look_up(self, session: Session) -> Existing | None:
        """Return it if it exists; Google's 404 may be raised if not."""
        response = session.call("GET", self.service, self.path)
        is_made = response.get("description") == f"{_DESCRIPTION}: {self.name}"
        is_made = is_made or _mark(self.path).items() <= (response.get("labels") or {}).items()
        return Existing(is_made, size=int(response.get("sizeBytes", 0)) or None)

    def create(self, session: Session) -> None:
        """Create it."""
        call = session.call("POST", self.service, self.parent, params=self.params, body=self.body)
        self._wait(session, call)

    def remove(self, session: Session) -> None:
        """Remove it; a bucket must be empty."""
        self._wait(session, session.call("DELETE", self.service, self.path))

    def _wait(self, session: Session, response: Mapping[str, Any]) -> None:
        """Wait for the end of an operation (https://google.aip.dev/151), if it is one."""
        backoff = Backoff(1.0, 8.0, deadline=_OPERATION, clock=session.clock)
        while "operations/" in response.get("name", "") and not response.get("done"):
            delay = backoff.next_delay()
            if delay is None:
                what = f"{self.service}.googleapis.com: not done after {_OPERATION:.0f} s"
                raise GoogleError(what, remedy="try again later")
            session.sleep(delay)
            response = session.call("GET", self.service, response["name"])
        if error := response.get("error"):
            raise GoogleError(f"Google refuses ({error.get('code')}): {error.get('message')}")


class Apis(CloudResource):
    """The APIs; they stay enabled."""

    def look_up(self, session: Session) -> Existing | None:
        project = self.parent.rpartition("/")[0]
        names = [f"{project}/services/{host}" for host in self.body["serviceIds"]]
        services = session.call("GET", self.service, self.path, params={"names": names})["services"]
        is_enabled = all(each.get("state") == "ENABLED" for each in services)
        return Existing(is_made=False) if is_enabled else None


class Bucket(CloudResource):
    """A bucket, whose name may be that of a bucket in another project."""

    def look_up(self, session: Session) -> Existing | None:
        response = session.call("GET", self.service, self.path)
        service = f"projects/{quote(self.params['project'], safe='')}/services/{_STORAGE}"
        # The parent of a service has the number of the project.
        number = session.call("GET", "serviceusage", service).get("parent", "")
        is_in_project = number == f"projects/{response.get('projectNumber')}"
        is_made = _mark(self.path).items() <= (response.get("labels") or {}).items()
        params = {"versions": "true", "delimiter": "/", "fields": "prefixes,items(name)"}
        listed = session.call("GET", self.service, f"{self.path}/o", params=params)
        names = [each["name"] for each in listed.get("items") or ()]
        folders = [*(listed.get("prefixes") or ()), *names]
        return Existing(is_made and is_in_project, is_in_project, folders=folders)

    def delete_files(self, session: Session) -> None:
        """Delete all files with their old versions."""
        path, params = f"{self.path}/o", {"versions": "true", "fields": "items(name,generation)"}
        delete = partial(self._delete, session)
        with ThreadPoolExecutor(16) as pool:
            while files := session.call("GET", self.service, path, params=params).get("items"):
                list(pool.map(delete, files))

    def _delete(self, session: Session, file: Mapping[str, str]) -> None:
        path = f"{self.path}/o/{quote(file['name'], safe='')}"
        try:
            session.call("DELETE", self.service, path, params={"generation": file["generation"]})
        except GoogleError as error:
            if error.status != HTTPStatus.NOT_FOUND:  # an earlier attempt deleted it
                raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Role(CloudResource):
    """A role on a resource, whose path it has."""

    role: str
    member: str  # empty for a caller whose name is not known

    def look_up(self, session: Session) -> Existing | None:
        policy = read_policy(session.call, self.service, self.path)
        return Existing(is_made=True) if has_role(policy, self.role, self.member) else None

    def create(self, session: Session) -> None:
        change_role(session, self.service, self.path, self.role, self.member, is_granted=True)

    def remove(self, session: Session) -> None:
        change_role(session, self.service, self.path, self.role, self.member, is_granted=False)


class CallersRole(Role):
    """The caller's role on an account, with which it ends; not needed e.g. by a project's owner."""

    def look_up(self, session: Session) -> Existing | None:
        path, body = f"{self.path}:testIamPermissions", {"permissions": [_ACT_AS]}
        is_held = session.call("POST", self.service, path, body=body).get("permissions")
        return Existing(is_made=False) if is_held else None

    def create(self, session: Session) -> None:
        if self.look_up(session):
            return
        if not self.member:
            command = f"iam service-accounts add-iam-policy-binding {self.path.rpartition('/')[2]}"
            remedy = grant(command, CURRENT_ACCOUNT, self.role)
            raise GoogleError("the credentials do not name your account", remedy=remedy)
        Role.create(self, session)


def find_resources(
    session: Session, job: Job, *, all_roles: bool = False
) -> list[tuple[CloudResource, Existing | None]]:
    """Return what a job needs, in the order of creation, and what exists of it.

    `all_roles` adds those that a job with other settings would need.
    """
    found = [(each, _find(session, each)) for each in _resources(job)]
    last, account = found[-1]
    if last.kind == _ACCOUNT and (account is None or account.is_made):
        caller = auth.iam_member(session.credentials) or ""
        roles = _roles(job, caller, all_roles=all_roles)
        found += [(each, account and _find(session, each)) for each in roles]
    return found


def create_resource(session: Session, resource: CloudResource) -> None:
    """Create a resource; what needs a new API or account is retried for some time."""
    backoff = Backoff(1.0, deadline=_PROPAGATION, clock=session.clock)
    while True:
        try:
            return resource.create(session)
        except GoogleError as error:  # noqa: PERF203 - each attempt may fail
            is_new = error.status == 404 or (error.status == 400 and "does not exist" in error.what)
            is_early = error.error_reason == DISABLED or (is_new and isinstance(resource, Role))
            delay = backoff.next_delay() if is_early else None
            if delay is None:
                # Created by an attempt whose response was lost, or by another command.
                if error.status == HTTPStatus.CONFLICT and _find(session, resource):
                    return None
                raise _explained(session, resource, error) from error
            session.sleep(delay)


def remove_resource(session: Session, resource: CloudResource) -> None:
    """Remove a resource; it may have been removed by an attempt whose response was lost."""
    try:
        resource.remove(session)
    except GoogleError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise _explained(session, resource, error) from error


def _resources(job: Job) -> Iterator[CloudResource]:
    project, region, email = str(job.project), str(job.region), str(job.service_account)
    services = f"{_project_path(job)}/services"
    apis = sorted({*_APIS, *(["cloudbuild"] if job.image.builder == "cloud-build" else [])})
    yield Apis(
        kind="APIs",
        name=", ".join(apis),
        cost=_FREE,
        admin_role="roles/serviceusage.serviceUsageAdmin",
        service="serviceusage",
        path=f"{services}:batchGet",
        parent=f"{services}:batchEnable",
        body={"serviceIds": [f"{api}.googleapis.com" for api in apis]},
    )
    bucket = _bucket_name(job)
    location = multi_region(region) if {*job.scheduling.regions} - {region} else region
    labels = _mark(bucket_path(bucket))
    yield Bucket(
        kind="bucket",
        name=f"gs://{bucket}",
        cost="billed by stored GB, deleted files for 7 more days",
        admin_role="roles/storage.admin",
        service="storage",
        path=bucket_path(bucket),
        parent="b",
        params={"project": project},
        body={"name": bucket, "location": location, "labels": labels, "iamConfiguration": _PRIVATE},
    )
    image = pushed_image(job)
    repository = image.google_repository if image else None
    if repository and repository.project == project:
        path = repository_path(repository)
        yield CloudResource(
            kind="repository",
            name=str(repository),
            cost="billed by stored GB",
            admin_role="roles/artifactregistry.admin",
            service="artifactregistry",
            path=path,
            parent=path.rpartition("/")[0],
            params={"repositoryId": repository.repository},
            body={"format": "DOCKER", "labels": _mark(path), "cleanupPolicies": _CLEANUP},
            note=f"cleanup policy: images are deleted after {_DAYS} days, but for the newest "
            f"{_NEWEST}",
        )
    account_id, _, domain = email.partition("@")
    if domain == f"{project}.iam.gserviceaccount.com":
        account = {"displayName": "distlaunch jobs", "description": f"{_DESCRIPTION}: {email}"}
        yield CloudResource(
            kind=_ACCOUNT,
            name=email,
            cost=_FREE,
            admin_role=_ACCOUNT_ADMIN,
            service="iam",
            path=account_path(email),
            parent=f"{_project_path(job)}/serviceAccounts",
            body={"accountId": account_id, "serviceAccount": account},
        )


def _roles(job: Job, caller: str, *, all_roles: bool) -> Iterator[Role]:
    """Yield the roles of the account, and that of the caller, who submits jobs that run as it."""
    email, bucket, path = str(job.service_account), _bucket_name(job), _project_path(job)
    of_project = ["roles/logging.logWriter"]
    if job.tensorboard or job.experiment or all_roles:
        of_project.append("roles/aiplatform.user")
    on_bucket = ("roles/storage.admin", "storage", bucket_path(bucket))
    on_project = ("roles/resourcemanager.projectIamAdmin", "cloudresourcemanager", path)
    on_account = (_ACCOUNT_ADMIN, "iam", account_path(email))
    for role, name, place in (
        ("roles/storage.objectAdmin", f"gs://{bucket}", on_bucket),
        *((role, f"project {job.project}", on_project) for role in of_project),
    ):
        title = f"{role} on {name} for {email}"
        yield Role("role", title, _FREE, *place, role=role, member=f"serviceAccount:{email}")
    role = "roles/iam.serviceAccountUser"
    title = f"{role} on {email} for {caller.partition(':')[2] or 'you'}"
    yield CallersRole("role", title, _FREE, *on_account, role=role, member=caller)


def _mark(path: str) -> dict[str, str]:
    """Return the label of a resource that setup creates."""
    return {_LABEL: path.rpartition("/")[2].replace(".", "_")[:63]}


def _bucket_name(job: Job) -> str:
    return str(job.bucket).removeprefix("gs://").partition("/")[0]


def _project_path(job: Job) -> str:
    return f"projects/{quote(str(job.project), safe='')}"


def _find(session: Session, resource: CloudResource) -> Existing | None:
    """Return a resource if it exists: not where its API is disabled."""
    try:
        return resource.look_up(session)
    except GoogleError as error:
        if error.status == 404 or error.error_reason == DISABLED:
            return None
        raise _explained(session, resource, error) from error


def _explained(session: Session, resource: CloudResource, error: GoogleError) -> DistlaunchError:
    """Return an error with the resource, and with the role that its creator needs."""
    remedy = error.remedy
    if is_denied(error):
        member = auth.iam_member(session.credentials) or CURRENT_ACCOUNT
        command = f"projects add-iam-policy-binding {session.project}"
        remedy = grant(command, member, resource.admin_role)
        if isinstance(resource, Bucket):
            remedy += "; if the name is taken by another project, set another bucket: in the file"
    return DistlaunchError(error.what, where=f"{resource.kind} {resource.name}", remedy=remedy)
