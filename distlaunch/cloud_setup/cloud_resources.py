"""What jobs need in Google Cloud: each resource is looked up, created and removed.

What setup creates has a mark: a label, or the description of the service account. Roles have none:
setup grants them only to an account that it created, so that all of that account's are its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from distlaunch.checks.cloud.context import APIS, is_denied
from distlaunch.checks.cloud.resources import (
    account_path,
    bucket_path,
    pushed_image,
    repository_path,
)
from distlaunch.checks.machines import mainland
from distlaunch.engines.vertex import auth
from distlaunch.engines.vertex.iam_policy import change_role, has_role, read_policy
from distlaunch.engines.vertex.operations import call_and_wait
from distlaunch.errors import DistlaunchError, GoogleError
from distlaunch.refusals import CURRENT_ACCOUNT, DISABLED, grant
from distlaunch.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distlaunch.engines.vertex.client import Session
    from distlaunch.job.model import Job

_MARK = {"created-by": "distlaunch-setup"}
_DESCRIPTION = "created by distlaunch setup"
_APIS = sorted((*APIS, "artifactregistry", "cloudresourcemanager", "iam"))
_ACT_AS = "iam.serviceAccounts.actAs"
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
_MULTI_REGIONS = {"europe": "eu"}  # of Cloud Storage, where they differ from the mainland's name
_FREE = "free"
_ACCOUNT_ADMIN, _LOGS = "roles/iam.serviceAccountAdmin", "roles/logging.logWriter"


class Existing(NamedTuple):
    """A resource that exists."""

    is_made: bool  # by setup
    size: int | None = None  # bytes
    objects: int = 0  # of a bucket, up to a thousand


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
        is_made = response.get("description") == _DESCRIPTION
        is_made = is_made or _MARK.items() <= (response.get("labels") or {}).items()
        return Existing(is_made, int(response["sizeBytes"]) if "sizeBytes" in response else None)

    def create(self, session: Session) -> None:
        """Create it."""
        call = call_and_wait if self.service == "artifactregistry" else type(session).call
        call(session, "POST", self.service, self.parent, params=self.params, body=self.body)

    def remove(self, session: Session) -> None:
        """Remove it, with all that is in it."""
        call = call_and_wait if self.service == "artifactregistry" else type(session).call
        call(session, "DELETE", self.service, self.path)


class Apis(CloudResource):
    """The APIs; they stay enabled."""

    def look_up(self, session: Session) -> Existing | None:
        names = [f"{self.path}/services/{api}.googleapis.com" for api in _APIS]
        path = f"{self.path}/services:batchGet"
        services = session.call("GET", self.service, path, params={"names": names})["services"]
        is_enabled = all(each.get("state") == "ENABLED" for each in services)
        return Existing(is_made=False) if is_enabled else None

    def create(self, session: Session) -> None:
        call_and_wait(session, "POST", self.service, self.parent, body=self.body)


class Bucket(CloudResource):
    """A bucket, which can be removed only when it is empty."""

    def look_up(self, session: Session) -> Existing | None:
        existing = super().look_up(session)
        objects = self._objects(session)
        sizes = sum(int(each["size"]) for each in objects)
        return existing and existing._replace(size=sizes, objects=len(objects))

    def remove(self, session: Session) -> None:
        with ThreadPoolExecutor(16) as pool:
            while objects := self._objects(session):
                list(pool.map(partial(self._delete, session), objects))
        super().remove(session)

    def _objects(self, session: Session) -> list[dict[str, Any]]:
        """Return the objects of the first page, with their old versions."""
        params = {"versions": "true", "fields": "items(name,generation,size)"}
        path = f"{self.path}/o"
        return session.call("GET", self.service, path, params=params).get("items") or []

    def _delete(self, session: Session, item: Mapping[str, str]) -> None:
        path = f"{self.path}/o/{quote(item['name'], safe='')}"
        session.call("DELETE", self.service, path, params={"generation": item["generation"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Role(CloudResource):
    """A role on a resource; its path is that of the resource, its parent that of the project."""

    role: str
    member: str  # empty for a caller whose name is not known

    def look_up(self, session: Session) -> Existing | None:
        if self._is_held(session):
            return Existing(is_made=False)
        policy = read_policy(session.call, self.service, self.path)
        return Existing(is_made=True) if has_role(policy, self.role, self.member) else None

    def create(self, session: Session) -> None:
        if self._is_held(session):
            return
        if not self.member:
            command = f"iam service-accounts add-iam-policy-binding {self.path.rpartition('/')[2]}"
            remedy = grant(command, CURRENT_ACCOUNT, self.role)
            raise GoogleError("the credentials do not name your account", remedy=remedy)
        change_role(session, self.service, self.path, self.role, self.member, is_granted=True)

    def remove(self, session: Session) -> None:
        change_role(session, self.service, self.path, self.role, self.member, is_granted=False)

    def _is_held(self, session: Session) -> bool:
        """Whether the caller may act as all accounts of the project, as its owner may."""
        if self.service != "iam":
            return False
        path, body = f"{self.parent}:testIamPermissions", {"permissions": [_ACT_AS]}
        return bool(
            session.call("POST", "cloudresourcemanager", path, body=body).get("permissions")
        )


def find_resources(session: Session, job: Job) -> list[tuple[CloudResource, Existing | None]]:
    """Return what a job needs, in the order of creation, and what exists of it."""
    found = [(each, _find(session, each)) for each in _resources(job)]
    account = found[-1][1]
    if account is None or account.is_made:
        roles = _roles(job, auth.iam_member(session.credentials) or "")
        found += [(each, account and _find(session, each)) for each in roles]
    return found


def create_or_remove(session: Session, resource: CloudResource, *, create: bool) -> None:
    """Create or remove a resource; what needs a new API or account is retried for some time."""
    backoff = Backoff(1.0, deadline=_PROPAGATION, clock=session.clock)
    while True:
        try:
            return (resource.create if create else resource.remove)(session)
        except GoogleError as error:  # noqa: PERF203 - each attempt may fail
            is_new = error.status == 404 or (error.status == 400 and "does not exist" in error.what)
            is_early = error.error_reason == DISABLED or (is_new and isinstance(resource, Role))
            delay = backoff.next_delay() if create and is_early else None
            if delay is None:
                raise _explained(session, resource, error) from error
            session.sleep(delay)


def _resources(job: Job) -> Iterator[CloudResource]:
    project, region, email = str(job.project), str(job.region), str(job.service_account)
    path, hosts = _project_path(job), [f"{api}.googleapis.com" for api in _APIS]
    admin, enable = "roles/serviceusage.serviceUsageAdmin", f"{path}/services:batchEnable"
    shared = ("APIs", ", ".join(_APIS), _FREE, admin, "serviceusage", path, enable)
    yield Apis(*shared, body={"serviceIds": hosts})
    bucket, continent = _bucket_name(job), mainland(region)
    multi_region = _MULTI_REGIONS.get(continent, continent)
    location = multi_region if {*job.scheduling.regions} - {region} else region
    yield Bucket(
        "bucket",
        f"gs://{bucket}",
        "billed by stored GB, deleted files for 7 more days",
        "roles/storage.admin",
        "storage",
        bucket_path(bucket),
        "b",
        {"project": project},
        {"name": bucket, "location": location, "labels": _MARK, "iamConfiguration": _PRIVATE},
    )
    image = pushed_image(job)
    repository = image.google_repository if image else None
    if repository and repository.project == project:
        yield CloudResource(
            "repository",
            str(repository),
            "billed by stored GB",
            "roles/artifactregistry.admin",
            "artifactregistry",
            repository_path(repository),
            repository_path(repository).rpartition("/")[0],
            {"repositoryId": repository.repository},
            {"format": "DOCKER", "labels": _MARK, "cleanupPolicies": _CLEANUP},
            f"cleanup policy: images are deleted after {_DAYS} days, but for the newest {_NEWEST}",
        )
    account_id, _, domain = email.partition("@")
    parent = f"projects/{domain.removesuffix('.iam.gserviceaccount.com')}/serviceAccounts"
    account = {"displayName": "distlaunch jobs", "description": _DESCRIPTION}
    body = {"accountId": account_id, "serviceAccount": account}
    of_iam = ("iam", account_path(email), parent)
    yield CloudResource("service account", email, _FREE, _ACCOUNT_ADMIN, *of_iam, body=body)


def _roles(job: Job, caller: str) -> Iterator[Role]:
    """Yield the roles of the account, and that of the caller, who submits jobs that run as it."""
    email, bucket, path = str(job.service_account), _bucket_name(job), _project_path(job)
    account = f"serviceAccount:{email}"
    on_bucket = ("roles/storage.admin", "storage", bucket_path(bucket))
    on_project = ("roles/resourcemanager.projectIamAdmin", "cloudresourcemanager", path)
    on_account = (_ACCOUNT_ADMIN, "iam", account_path(email))
    of_vertex = ["roles/aiplatform.user"] if job.tensorboard or job.experiment else []
    for role, name, member, place in (
        ("roles/storage.objectAdmin", f"gs://{bucket}", account, on_bucket),
        *((role, f"project {job.project}", account, on_project) for role in (_LOGS, *of_vertex)),
        ("roles/iam.serviceAccountUser", email, caller, on_account),
    ):
        title = f"{role} on {name} for {member.partition(':')[2] or 'you'}"
        yield Role("role", title, _FREE, *place, path, role=role, member=member)


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
    return DistlaunchError(error.what, where=f"{resource.kind} {resource.name}", remedy=remedy)
