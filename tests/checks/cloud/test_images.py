"""Images that a job names, in a registry on this machine."""

from __future__ import annotations

import hashlib
import json

import pytest

from distlaunch.checks.cloud.context import CloudContext
from distlaunch.checks.cloud.images import named_images
from distlaunch.checks.request_view import job_request
from distlaunch.job.model import Cluster, Image, Machine, Pool, Program, ReductionServer
from distlaunch.submit.plan import LaunchRequest

from ...google.servers import Reply, Server  # noqa: TID252 - tests are no package

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def image(architecture: str) -> dict[str, Reply]:
    """Return a registry's replies for an image, by the ends of the paths."""
    config = json.dumps(
        {"os": "linux", "architecture": architecture, "rootfs": {"diff_ids": []}}
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"digest": digest(config), "size": len(config)},
            "layers": [],
        }
    ).encode()
    return {
        f"/manifests/{architecture}": Reply(200, manifest, {"Content-Type": MANIFEST}),
        f"/blobs/{digest(config)}": Reply(200, config),
    }


def index(*architectures: str) -> dict[str, Reply]:
    entries = [
        {"digest": digest(b""), "platform": {"os": "linux", "architecture": name}}
        for name in architectures
    ]
    body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
    return {"/manifests/index": Reply(200, body, {"Content-Type": INDEX})}


@pytest.fixture
def registry():
    replies = {**image("amd64"), **image("arm64"), **index("arm64", "s390x")}
    replies["/manifests/broken"] = Reply(500, {})
    replies["/manifests/secret"] = Reply(403, {})
    unknown = Reply(404, {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]})

    def answer(request) -> Reply:
        return next(
            (reply for end, reply in replies.items() if request.path.endswith(end)), unknown
        )

    server = Server(answer)
    yield f"localhost:{server.port}/digits"
    server.close()


@pytest.fixture
def of_image(job, look, serve_google):
    """Return a function that checks a job with an image."""
    return lambda uri: look(job(image=Image(uri=uri)), serve_google().url)


@pytest.mark.parametrize(
    ("tag", "code", "message"),
    [
        ("missing", "image-missing", "there is no image"),
        ("arm64", "image-architecture", "is for linux/arm64, and Google's machines are"),
        ("index", "image-architecture", "is for linux/arm64, linux/s390x"),
        ("broken", "unanswered", "fails with 500"),
        ("secret", "unanswered", "pull of"),
    ],
)
def test_an_unusable_image_is_a_problem(tag, code, message, registry, of_image):
    uri = f"{registry}:{tag}"
    [problem] = of_image(uri)
    assert (problem.code, problem.where) == (code, uri)
    assert message in problem.what
    assert problem.remedy


def test_with_an_emulator_only_local_registries_are_contacted(registry, of_image):
    assert of_image(f"{registry}:amd64") == []
    assert of_image("registry.invalid/some/image:1") == []


def test_images_of_pools_are_checked(registry, job, look, serve_google):
    machine = Machine("n1-standard-8")
    own = Pool(machine, 2, Program(image=f"{registry}:arm64"))
    cluster = Cluster(Pool(machine), own, Pool(machine, 1, own.program))
    [problem] = look(job(cluster=cluster), serve_google().url)
    assert (problem.code, problem.where) == ("image-architecture", f"{registry}:arm64")


def test_the_image_of_the_reduction_server_is_not_checked(job, known, tmp_path):
    order = LaunchRequest(
        tmp_path, job(image=Image(uri="a/b:1"), reduction_server=ReductionServer(2))
    )
    context = CloudContext(order, job_request(order), None, known)
    assert context.request.pools[-1].role == "reduction_server"
    assert [str(image) for image in named_images(context)] == ["a/b:1"]
