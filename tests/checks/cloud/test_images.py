"""Images that a job names, in a registry on this machine."""

from __future__ import annotations

import json

import pytest
from fake_registry import FakeRegistry, Fault

from distlaunch.job.model import Cluster, Image, Machine, Pool, Program, ReductionServer

INDEX = "application/vnd.oci.image.index.v1+json"
STATUS = {"broken": 500, "secret": 403}
PROGRAM = ["python", "-m", "trainer.task"]
ENTRYPOINT, CMD = {"config": {"Entrypoint": PROGRAM}}, {"config": {"Cmd": PROGRAM}}


@pytest.fixture(scope="module")
def registry():
    """A registry with images for arm64 and amd64, and an index without amd64."""

    def rule(request):
        status = STATUS.get(request.path.rpartition("/")[2])
        return Fault(status) if status else None

    with FakeRegistry(rule) as registry:
        for name in ("amd64", "arm64"):
            config = {"os": "linux", "architecture": name, "rootfs": {"diff_ids": ["sha256:0"]}}
            registry.put_image("digits", name, config | ENTRYPOINT, b"layer")
        registry.put_image("digits", "cmd", config | {"architecture": "amd64"} | CMD, b"layer")
        entries = [
            {"digest": f"sha256:{'0' * 64}", "platform": {"os": "linux", "architecture": name}}
            for name in ("arm64", "s390x")
        ]
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
        registry.repository("digits").manifests["index"] = (INDEX, json.dumps(index).encode())
        yield f"{registry.host}/digits"


def test_an_unusable_image_is_a_problem(registry, check):
    for tag, code, message in (
        ("missing", "image-missing", "there is no image"),
        ("index", "image-architecture", "is for linux/arm64, linux/s390x"),
        ("broken", "unanswered", "fails with 500"),
        ("secret", "unanswered", "pull of"),
    ):
        [problem] = check({"image": Image(uri=f"{registry}:{tag}")})
        assert (problem.code, problem.where) == (code, f"{registry}:{tag}")
        assert message in problem.what
        assert problem.remedy


def test_all_images_of_pools_are_checked_but_googles_reduction_server(registry, check):
    machine = Machine("n1-standard-8")
    program = Program(image=f"{registry}:arm64")
    cluster = Cluster(Pool(machine), Pool(machine, 2, program), Pool(machine, 1, program))
    [problem] = check({"cluster": cluster})
    assert (problem.code, problem.where) == ("image-architecture", program.image)
    image = Image(uri=f"{registry}:amd64")
    assert check({"image": image, "reduction_server": ReductionServer(2)}) == []


def test_args_of_the_job_replace_the_cmd_of_its_image(registry, check):
    uri = f"{registry}:cmd"
    assert check({"image": Image(uri=uri)}) == []
    [problem] = check({"image": Image(uri=uri), "args": ("--epochs=3",)})
    assert (problem.code, problem.where) == ("args-not-passed", uri)
    assert 'ENTRYPOINT ["python", "-m", "trainer.task"]' in problem.remedy
    pool = Pool(Machine("n1-standard-8"), program=Program(uri, ("python", "-m"), ("x", "--y")))
    assert check({"cluster": Cluster(pool)}) == []
