"""The addresses of Cloud Storage, and the permission that a request to each of them needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlaunch.emulator.service.answers import Request

BUCKET = re.compile(r"/storage/v1/b(/(?P<bucket>[^/]+)(?P<rest>/iam(/testPermissions)?)?)?/?")
OBJECTS = re.compile(r"/storage/v1/b/(?P<bucket>[^/]+)/o/?")
OBJECT = re.compile(
    r"/(?P<way>download/)?storage/v1/b/(?P<bucket>[^/]+)/o/(?P<name>[^/]+)"
    r"(?P<verb>/compose|/(copyTo|rewriteTo)/b/(?P<to_bucket>[^/]+)/o/(?P<to_name>[^/]+))?"
)
UPLOAD = re.compile(r"/(resumable/)?upload/storage/v1/b/(?P<bucket>[^/]+)/o/?")
PLAIN = re.compile(r"/(?P<bucket>[^/]+)/(?P<name>.+)", re.DOTALL)

_VERBS = {"GET": "get", "HEAD": "get", "DELETE": "delete", "PATCH": "update", "POST": "create"}


def needed(request: Request) -> str:
    """Return the permission that a request needs, nothing where it needs none.

    https://cloud.google.com/storage/docs/access-control/iam-json
    """
    path, method = request.path, request.method
    if UPLOAD.fullmatch(path):
        return "storage.objects.create"
    if OBJECT.fullmatch(path):
        return f"storage.objects.{_VERBS.get(method, 'update')}"
    if OBJECTS.fullmatch(path):
        return "storage.objects.list"
    found = BUCKET.fullmatch(path)
    return _of_bucket(method, found) if found else f"storage.objects.{_VERBS.get(method, 'create')}"


def is_upload(request: Request) -> bool:
    """Return whether a request's content is an object's, by the JSON API or the XML API."""
    if UPLOAD.fullmatch(request.path):
        return True
    is_json_api = any(each.fullmatch(request.path) for each in (OBJECT, OBJECTS, BUCKET))
    return request.method == "PUT" and not is_json_api


def _of_bucket(method: str, found: re.Match[str]) -> str:
    if found["rest"]:
        return "" if found["rest"].endswith("testPermissions") else "storage.buckets.getIamPolicy"
    if found["bucket"] is None and method == "GET":
        return "storage.buckets.list"
    return f"storage.buckets.{_VERBS.get(method, 'update')}"
