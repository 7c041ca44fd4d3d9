"""Cloud Storage's JSON API for buckets themselves.

https://cloud.google.com/storage/docs/json_api/v1/buckets
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from distlaunch.emulator.lacks import location_type
from distlaunch.emulator.service.answers import Answer
from distlaunch.emulator.service.buckets import StorageRefused, no_storage_method
from distlaunch.emulator.service.policies import held
from distlaunch.emulator.store import project_number
from distlaunch.emulator.times import format_time

if TYPE_CHECKING:
    from distlaunch.emulator.lacks import Lacks
    from distlaunch.emulator.service.answers import Request
    from distlaunch.emulator.service.buckets import Buckets


class BucketService:
    """Makes, tells of and removes buckets.

    Parameters
    ----------
    buckets
        Where they are.
    region
        Where all of them are said to be, unless the project lacks such.
    lacks
        What the project lacks.
    """

    def __init__(self, buckets: Buckets, region: str, lacks: Lacks) -> None:
        self._buckets = buckets
        self._location = lacks.bucket_location or region.upper()
        self._lacks = lacks
        self._made: set[str] = set()

    def check(self, bucket: str) -> None:
        """See to it that a bucket is there.

        Raises
        ------
        StorageRefused
            If the project lacks buckets, and this one has not been made since.
        """
        if "bucket" in self._lacks and bucket not in self._made:
            raise StorageRefused(404, "notFound", "The specified bucket does not exist.")

    def answer(self, request: Request, *, bucket: str, rest: str) -> Answer:
        """Answer a request about one bucket, or about all where none is named.

        Raises
        ------
        Refused
            If it cannot be.
        """
        if not bucket:
            return self._all(request)
        self._buckets.path(bucket)
        if rest.endswith("testPermissions"):
            permissions = held(request.repeated.get("permissions"), self._lacks)
            return Answer({"kind": "storage#testIamPermissionsResponse", **permissions})
        match request.method, rest:
            case "GET", "":
                return Answer(self._told(bucket, request))
            case "PATCH" | "PUT", "":
                return Answer(self._told(bucket, request))
            case "DELETE", "":
                self._buckets.remove(bucket)
                self._made.discard(bucket)
                return Answer(b"", 204)
            case "GET", _:
                return Answer(
                    {"kind": "storage#policy", "version": 1, "etag": "CAE=", "bindings": []}
                )
        raise no_storage_method(request)

    def _all(self, request: Request) -> Answer:
        if request.method == "GET":
            prefix = request.options.get("prefix", "")
            names = [name for name in self._buckets.names() if name.startswith(prefix)]
            items = [self._told(name, request) for name in names]
            return Answer({"kind": "storage#buckets", "items": items})
        if request.method != "POST":
            raise no_storage_method(request)
        name = str(request.json().get("name", ""))
        if not self._buckets.make(name):
            text = (
                "Your previous request to create the named bucket succeeded and you already own it."
            )
            raise StorageRefused(409, "conflict", text)
        self._made.add(name)
        return Answer(self._told(name, request))

    def _told(self, bucket: str, request: Request) -> dict[str, Any]:
        path = self._buckets.path(bucket)
        place = path if path.exists() else self._buckets.folder
        made = format_time(datetime.fromtimestamp(place.stat().st_mtime, timezone.utc))
        return {
            "kind": "storage#bucket",
            "id": bucket,
            "name": bucket,
            "selfLink": f"{request.origin}/storage/v1/b/{bucket}",
            "projectNumber": project_number(request.options.get("project", "my-project")),
            "location": self._location,
            "locationType": location_type(self._location),
            "storageClass": "STANDARD",
            "metageneration": "1",
            "etag": "CAE=",
            "timeCreated": made,
            "updated": made,
            "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
        }
