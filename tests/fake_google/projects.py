"""A project in Google Cloud with state: APIs, buckets, repositories, accounts and IAM policies.

Requests are checked against the discovery documents of google-api-python-client.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import googleapiclient.discovery_cache

from . import NUMBER, ROUTES, FakeGoogle, Refused

if TYPE_CHECKING:
    from . import Request

PROJECT = "demo-project"
_PARENT = r"projects/[^/]+"
_REPOSITORIES = rf"artifactregistry/v1/{_PARENT}/locations/[^/]+/repositories"
_ACCOUNT = rf"iam/v1/{_PARENT}/serviceAccounts/(?P<email>[^/:]+)"
_POLICY_OWNERS = (
    rf"(?P<service>cloudresourcemanager)/v3/(?P<name>{_PARENT})",
    rf"(?P<service>iam)/v1/(?P<name>{_PARENT}/serviceAccounts/[^/]+)",
    r"(?P<service>artifactregistry)/v1/(?P<name>.*)",
)
# The kind of a call, its method and path, and the document and the schema of its body.
_CALLS = (
    (
        "enable",
        "POST",
        rf"serviceusage/v1/{_PARENT}/services:batchEnable",
        "BatchEnableServicesRequest",
    ),
    ("operation", "GET", r"(serviceusage|artifactregistry)/v1/(?P<name>(.*/)?operations/.*)", ""),
    ("create_bucket", "POST", r"storage/storage/v1/b", "Bucket"),
    ("bucket", "GET", r"storage/storage/v1/b/(?P<bucket>[^/]+)", ""),
    ("delete_bucket", "DELETE", r"storage/storage/v1/b/(?P<bucket>[^/]+)", ""),
    ("objects", "GET", r"storage/storage/v1/b/(?P<bucket>[^/]+)/o", ""),
    ("delete_object", "DELETE", r"storage/storage/v1/b/(?P<bucket>[^/]+)/o/(?P<name>[^/]+)", ""),
    ("read_policy", "GET", r"(?P<service>storage)/storage/v1/(?P<name>b/[^/]+)/iam", ""),
    ("write_policy", "PUT", r"(?P<service>storage)/storage/v1/(?P<name>b/[^/]+)/iam", "Policy"),
    *(
        ("read_policy", "GET" if "art" in owner else "POST", f"{owner}:getIamPolicy", "")
        for owner in _POLICY_OWNERS
    ),
    *(
        ("write_policy", "POST", f"{owner}:setIamPolicy", "SetIamPolicyRequest")
        for owner in _POLICY_OWNERS
    ),
    ("create_repository", "POST", _REPOSITORIES, "Repository"),
    ("repository", "GET", rf"{_REPOSITORIES}/(?P<repository>[^/:]+)", ""),
    ("delete_repository", "DELETE", rf"{_REPOSITORIES}/(?P<repository>[^/:]+)", ""),
    ("create_account", "POST", rf"iam/v1/{_PARENT}/serviceAccounts", "CreateServiceAccountRequest"),
    ("account", "GET", _ACCOUNT, ""),
    ("delete_account", "DELETE", _ACCOUNT, ""),
    ("machines", "GET", r"aiplatform/v1/.*/persistentResources", ""),
)
_DOCUMENTS = {"cloudresourcemanager": "v3"}
_SCHEMAS = {(kind, pattern): schema for kind, _, pattern, schema in _CALLS if schema}


@cache
def _schemas(service: str) -> dict[str, Any]:
    folder = Path(googleapiclient.discovery_cache.__file__).parent / "documents"
    name = f"{service}.{_DOCUMENTS.get(service, 'v1')}.json"
    schemas: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))["schemas"]
    return schemas


def _check(service: str, schema: dict[str, Any], value: Any, path: str) -> None:
    """Refuse a body with fields or words that Google does not document."""
    schema = _schemas(service)[schema["$ref"]] if "$ref" in schema else schema
    expected = {"object": dict, "array": list, "boolean": bool, "integer": int, "string": str}
    if (
        "type" in schema
        and schema["type"] != "any"
        and not isinstance(value, expected[schema["type"]])
    ):
        raise Refused(400, f"Invalid value at {path!r}: {value!r}")
    if "enum" in schema and value not in schema["enum"]:
        raise Refused(400, f"Invalid value at {path!r}: {value!r}")
    if isinstance(value, dict):
        for key, item in value.items():
            below = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if below is None or "Output only" in below.get("description", ""):
                raise Refused(
                    400, f"Invalid JSON payload received. Unknown name {key!r} at {path!r}"
                )
            _check(service, below, item, f"{path}.{key}")
    for item in value if isinstance(value, list) else ():
        _check(service, schema["items"], item, path)


@dataclass
class FakeProject(FakeGoogle):
    """A new project, in which the caller may do all, but for `without` and `failures`."""

    enabled: set[str] = field(default_factory=lambda: {"serviceusage", "storage", "oauth2"})
    buckets: dict[str, dict[str, Any]] = field(default_factory=dict)
    objects: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))  # sizes
    repositories: dict[str, dict[str, Any]] = field(default_factory=dict)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: list[dict[str, Any]] = field(default_factory=list)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)  # by the resource's path
    changes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By resource, the role and the member that others add between a read and the next write."""
    delay: int = 0  # how many calls fail after an API was enabled or an account created
    lost: set[str] = field(default_factory=set)  # kinds of calls whose next response is lost
    _operations: dict[str, int] = field(default_factory=dict)  # calls until it is done
    _early: dict[str, int] = field(default_factory=dict)  # calls that still fail
    routes: ClassVar[tuple[tuple[str, str, str], ...]] = (
        *(call[:3] for call in _CALLS),
        *ROUTES,
    )

    def state(self) -> str:
        """Return all that exists."""
        policies = {name: each["bindings"] for name, each in self.policies.items()}
        filled = [{k: v for k, v in each.items() if v} for each in (self.objects, policies)]
        parts = (sorted(self.enabled), self.buckets, self.repositories, self.accounts, *filled)
        return json.dumps(parts, sort_keys=True)

    def grant(self, resource: str, role: str, *members: str, condition: str = "") -> None:
        """Grant a role as someone else."""
        binding = {"role": role, "members": list(members)}
        binding |= {"condition": {"title": "t", "expression": condition}} if condition else {}
        policy = self._policy(resource)
        bindings = [*policy["bindings"], binding]
        self.policies[resource] = {"bindings": bindings, "etag": f"{policy['etag']}x"}

    def roles(self, resource: str) -> set[tuple[str, str]]:
        """Return the roles on a resource, each with a member."""
        bindings = self._policy(resource)["bindings"]
        return {(each["role"], member) for each in bindings for member in each["members"]}

    def _policy(self, resource: str) -> dict[str, Any]:
        return self.policies.get(resource) or {"bindings": [], "etag": "a"}

    def _fail(self, kind: str, service: str) -> None:
        super()._fail(kind, service)
        if service not in self.enabled or self._is_early(service):
            api = f"{service}.googleapis.com"
            raise Refused(403, f"{api} is disabled.", "SERVICE_DISABLED", service=api)

    def _is_early(self, name: str) -> bool:
        self._early[name] = self._early.get(name, 0) - 1
        return self._early[name] >= 0

    def _response(self, kind: str, request: Request, parts: Any) -> Any:
        service = request.host.partition(".")[0]
        for (other, pattern), schema in _SCHEMAS.items():
            if other == kind and re.fullmatch(pattern, f"{service}{request.path}"):
                _check(service, {"$ref": schema}, json.loads(request.body), "")
        if hasattr(self, f"_{kind}"):
            response = getattr(self, f"_{kind}")(request, **parts)
            if kind in self.lost:
                self.lost.remove(kind)
                raise Refused(503)
            return response
        return super()._response(kind, request, parts)

    def _service(self, _: Request, name: str = "") -> dict[str, Any]:
        api = name.rpartition("/")[2].removesuffix(".googleapis.com")
        state = "ENABLED" if api in self.enabled else "DISABLED"
        return {"name": name, "parent": f"projects/{NUMBER}", "state": state}

    def _enable(self, request: Request) -> dict[str, Any]:
        hosts = json.loads(request.body)["serviceIds"]
        assert len(hosts) <= 20  # Google's limit
        new = {host.removesuffix(".googleapis.com") for host in hosts} - self.enabled
        self.enabled |= new
        self._early |= dict.fromkeys(new, self.delay)
        return self._start("operations/acf.p2-1")

    def _start(self, name: str) -> dict[str, Any]:
        self._operations[name] = 2
        return {"name": name}

    def _operation(self, _: Request, name: str) -> dict[str, Any]:
        self._operations[name] -= 1
        return {"name": name, **({} if self._operations[name] else {"done": True, "response": {}})}

    def _create_bucket(self, request: Request) -> dict[str, Any]:
        body = json.loads(request.body)
        assert request.params["project"] == [PROJECT]
        self._refuse_existing(self.buckets, body["name"])
        self.buckets[body["name"]] = {**body, "projectNumber": NUMBER}
        return body

    def _bucket(self, _: Request, bucket: str) -> dict[str, Any]:
        return self._existing(self.buckets, bucket)

    def _delete_bucket(self, _: Request, bucket: str) -> dict[str, Any]:
        if self.objects[bucket]:
            raise Refused(409, "The bucket you tried to delete is not empty.")
        self.policies.pop(f"b/{bucket}", None)
        self._existing(self.buckets, bucket)
        del self.buckets[bucket]
        return {}

    def _objects(self, request: Request, bucket: str) -> dict[str, Any]:
        self._existing(self.buckets, bucket)
        if request.params.get("delimiter"):
            names = self.objects[bucket]
            prefixes = {f"{name.partition('/')[0]}/" for name in names if "/" in name}
            items = [{"name": name} for name in names if "/" not in name]
            return {"prefixes": sorted(prefixes), "items": items}
        sizes = [*self.objects[bucket].items()][:1000]
        items = [{"name": name, "generation": "1", "size": str(size)} for name, size in sizes]
        return {"items": items} if items else {}

    def _delete_object(self, request: Request, bucket: str, name: str) -> dict[str, Any]:
        assert request.params["generation"] == ["1"]
        self._existing(self.objects[bucket], unquote(name))
        del self.objects[bucket][unquote(name)]
        return {}

    def _create_repository(self, request: Request) -> dict[str, Any]:
        name = f"{request.path.removeprefix('/v1/')}/{request.params['repositoryId'][0]}"
        self._refuse_existing(self.repositories, name.rpartition("/")[2])
        self.repositories[name.rpartition("/")[2]] = {**json.loads(request.body), "name": name}
        return self._start(f"{name.partition('/repositories')[0]}/operations/7")

    def _repository(self, _: Request, repository: str) -> dict[str, Any]:
        return self._existing(self.repositories, repository)

    def _delete_repository(self, request: Request, repository: str) -> dict[str, Any]:
        self._existing(self.repositories, repository)
        del self.repositories[repository]
        return self._start(f"{request.path[4:].partition('/repositories')[0]}/operations/8")

    def _create_account(self, request: Request) -> dict[str, Any]:
        body = json.loads(request.body)
        email = f"{body['accountId']}@{request.path.split('/')[3]}.iam.gserviceaccount.com"
        self._refuse_existing(self.accounts, email)
        self.accounts[email] = {**body["serviceAccount"], "email": email}
        self._early[email] = self.delay
        return self.accounts[email]

    def _account(self, _: Request, email: str) -> dict[str, Any]:
        return self._existing(self.accounts, email)

    def _permissions(self, request: Request) -> dict[str, Any]:
        path = request.path.removeprefix("/v1/").removesuffix(":testIamPermissions")
        self._policy_owner(request.host.partition(".")[0], path)
        if self.roles(path):  # of the caller
            return {"permissions": json.loads(request.body)["permissions"]}
        return super()._permissions(request)

    def _delete_account(self, _: Request, email: str) -> dict[str, Any]:
        self._existing(self.accounts, email)
        self.policies.pop(f"projects/-/serviceAccounts/{email}", None)
        del self.accounts[email]
        return {}

    def _read_policy(self, request: Request, service: str, name: str) -> dict[str, Any]:
        self._policy_owner(service, name)
        policy = deepcopy(self._policy(name))
        options = json.loads(request.body).get("options", {})
        versions = [value[0] for key, value in request.params.items() if "PolicyVersion" in key]
        if not any(binding.get("condition") for binding in policy["bindings"]):
            return {"version": 1, **policy}
        if str(options.get("requestedPolicyVersion", *versions)) == "3":
            return {"version": 3, **policy}
        for binding in policy["bindings"]:
            binding.pop("condition", None)
        return {"version": 1, **policy}

    def _write_policy(self, request: Request, service: str, name: str) -> dict[str, Any]:
        self._policy_owner(service, name)
        if name in self.changes:
            self.grant(name, *self.changes.pop(name))
        body = json.loads(request.body)
        new = body if service == "storage" else body["policy"]
        if new["etag"] != self._policy(name)["etag"]:
            raise Refused(412 if service == "storage" else 409, "There were concurrent changes.")
        members = {member for binding in new["bindings"] for member in binding["members"]}
        for email in {*self.accounts}:
            if f"serviceAccount:{email}" in members and self._is_early(email):
                raise Refused(400, f"Service account {email} does not exist.")
        assert all(binding["members"] for binding in new["bindings"])
        has_conditions = any(binding.get("condition") for binding in new["bindings"])
        assert not has_conditions or new["version"] == 3
        self.policies[name] = {"bindings": new["bindings"], "etag": f"{new['etag']}b"}
        return new

    def _policy_owner(self, service: str, name: str) -> None:
        last = name.rpartition("/")[2]
        owners = {"storage": self.buckets, "iam": self.accounts}
        if service in owners:
            self._existing(owners[service], last)

    def _machines(self, _: Request) -> dict[str, Any]:
        return {"persistentResources": self.machines}

    def _jobs(self, request: Request, collection: str) -> dict[str, Any]:
        words = request.params.get("filter", [""])[0]
        jobs = self.jobs[collection]
        return {collection: [job for job in jobs if f'state="{job["state"]}"' in words]}

    @staticmethod
    def _refuse_existing(resources: dict[str, dict[str, Any]], name: str) -> None:
        if name in resources:
            raise Refused(409, f"{name} already exists.")

    @staticmethod
    def _existing(resources: dict[str, Any], name: str) -> Any:
        if name not in resources:
            raise Refused(404, "Requested entity was not found.")
        return resources[name]
