"""Cloud Build and the bucket of its sources and logs, which pushes to a registry in memory."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fake_registry import digest_of
from jsonschema import Draft202012Validator

from distlaunch import timestamps

from . import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fake_registry import FakeRegistry

    from . import Request

ACCOUNT = "123456789012-compute@developer.gserviceaccount.com"
LOG_URL = "https://console.cloud.google.com/cloud-build/builds;region=us-central1/{}?project=1"

_WORDS = {"type": "array", "items": {"type": "string"}, "minItems": 1}


def _message(required: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": required.split(),
        "additionalProperties": False,
    }


# The fields that a caller sets of google.devtools.cloudbuild.v1.Build, as far as they are used:
# https://github.com/googleapis/googleapis/blob/master/google/devtools/cloudbuild/v1/cloudbuild.proto
BUILD = _message(
    "source steps images",
    source=_message(
        "storageSource",
        storageSource=_message(
            "bucket object",
            bucket={"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]+$"},
            object={"type": "string", "pattern": r"\.tar\.gz$"},
        ),
    ),
    steps={
        "type": "array",
        "items": _message("name", name={"type": "string"}, args=_WORDS, env=_WORDS),
    },
    images=_WORDS,
    tags={"type": "array", "items": {"type": "string", "pattern": r"^[\w][\w.-]{0,127}$"}},
    timeout={"type": "string", "pattern": r"^\d+s$"},
    logsBucket={"type": "string", "pattern": "^gs://"},
    options=_message(
        "",
        logging={"enum": ["LEGACY", "GCS_ONLY", "CLOUD_LOGGING_ONLY", "NONE"]},
        logStreamingOption={"enum": ["STREAM_DEFAULT", "STREAM_ON", "STREAM_OFF"]},
    ),
)


@dataclass
class FakeCloudBuild:
    """Runs each build in two looks at it; `outcome` are the fields of one that fails."""

    registry: FakeRegistry
    outcome: Mapping[str, Any] = field(default_factory=dict)
    log: str = "#5 [2/3] RUN pip install\n#5 0.6 Collecting six\nDONE\n"
    objects: dict[str, bytes] = field(default_factory=dict)  # of all buckets, by BUCKET/NAME
    updated: dict[str, str] = field(default_factory=dict)  # times of objects, if not now
    builds: list[dict[str, Any]] = field(default_factory=list)
    sources: list[dict[str, tarfile.TarInfo | bytes]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    loses_response: bool = False  # to the first call that creates a build
    refusals: dict[str, Refused] = field(default_factory=dict)  # of calls as in `calls`
    on_working: Callable[[], object] = lambda: None  # when a build is seen at work

    def __call__(self, method: str, request: Request) -> Any:
        if request.host == "storage.googleapis.com":
            return self._store(method, request)
        if request.host != "cloudbuild.googleapis.com":
            return None
        match = re.fullmatch(
            r"/v1/projects/demo-project/locations/us-central1/(\w+)(?:/([\w-]+)(:cancel)?)?",
            request.path,
        )
        assert match, request.path
        self.calls.append(f"{method} {match[1]}{match[3] or ''}")
        if refusal := self.refusals.get(self.calls[-1]):
            raise refusal
        if match[1] == "defaultServiceAccount":
            return {"serviceAccountEmail": f"projects/demo-project/serviceAccounts/{ACCOUNT}"}
        if method == "POST" and not match[2]:
            return self._create(json.loads(request.body))
        if not match[2]:
            (tag,) = re.fullmatch(r'tags="(.+)"', request.params["filter"][0]).groups()
            return {"builds": [b for b in reversed(self.builds) if tag in b["tags"]]}
        build = next(each for each in self.builds if each["id"] == match[2])
        if match[3]:
            assert json.loads(request.body) == {"projectId": "demo-project", "id": match[2]}
            build["status"] = "CANCELLED"
        else:
            self._advance(build)
        return build

    def _create(self, body: dict[str, Any]) -> Any:
        Draft202012Validator(BUILD).validate(body)
        where = body["source"]["storageSource"]
        self.sources.append(dict(_entries(self.objects[f"{where['bucket']}/{where['object']}"])))
        id = f"0000-{len(self.builds)}"  # noqa: A001 - Google's word
        build = {**body, "id": id, "status": "QUEUED", "logUrl": LOG_URL.format(id)}
        self.builds.append(build)
        if self.loses_response:
            self.loses_response = False
            raise Refused(503)
        return {"name": "operations/build/demo-project/MA", "metadata": {"build": build}}

    def _advance(self, build: dict[str, Any]) -> None:
        log = f"{build['logsBucket'].removeprefix('gs://')}/log-{build['id']}.txt"
        if build["status"] == "QUEUED":
            build["status"] = "WORKING"
            self.objects[log] = self.log.encode()[:30]
        elif build["status"] == "WORKING":
            self.on_working()
            self.objects[log] = self.log.encode()
            build |= self.outcome or self._push(build)

    def _push(self, build: Mapping[str, Any]) -> dict[str, Any]:
        """Push what a build of the context would give: an image with a layer of its files."""
        (image,) = build["images"]
        assert f"--tag={image}" in build["steps"][0]["args"]
        name, _, tag = image.partition("/")[2].rpartition(":")
        layer = gzip.compress(json.dumps(sorted(self.sources[-1])).encode(), mtime=0)
        config = {
            "os": "linux",
            "architecture": "amd64",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(gzip.decompress(layer))]},
            "history": [{"created_by": "RUN"}],
        }
        digest = self.registry.put_image(name, tag, config, layer)
        return {"status": "SUCCESS", "results": {"images": [{"name": image, "digest": digest}]}}

    def _store(self, method: str, request: Request) -> Any:
        """Respond to Cloud Storage's lists, uploads, downloads and deletions."""
        if match := re.fullmatch(r"/storage/v1/b/([^/]+)/o", request.path):
            names = [name.partition("/")[2] for name in self.objects if name.startswith(match[1])]
            return {
                "items": [
                    {
                        "name": name,
                        "generation": "1",
                        "size": "1",
                        "updated": self.updated.get(name, timestamps.format(time.time())),
                    }
                    for name in names
                    if name.startswith(request.params["prefix"][0])
                ]
            }
        if match := re.fullmatch(r"/upload/storage/v1/b/([^/]+)/o", request.path):
            head, _, content = request.body.partition(b"\r\n\r\n")
            metadata, _, content = content.partition(b"\r\n")
            content = content.partition(b"\r\n\r\n")[2].rpartition(head.split(b"\r\n")[0])[0]
            name = json.loads(metadata)["name"]
            self.objects[f"{match[1]}/{name}"] = content.removesuffix(b"\r\n")
            return {"name": name, "bucket": match[1]}
        match = re.fullmatch(r"(?:/download)?/storage/v1/b/([^/]+)/o/(.+)", request.path)
        if match is None:
            return None
        name = f"{match[1]}/{unquote(match[2])}"
        if name not in self.objects:
            raise Refused(404)
        return self.objects[name] if method == "GET" else bool(self.objects.pop(name)) and {}


def _entries(archive: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the names of an archive with what docker sees of them: mode, and content or target."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for entry in tar:
            content = tar.extractfile(entry).read() if entry.isreg() else entry.linkname.encode()
            yield entry.name.removeprefix("./"), (entry.mode, content)
