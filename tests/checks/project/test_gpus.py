from __future__ import annotations

from datetime import date

import pytest

from distlaunch.checks.project import gpus
from distlaunch.checks.project.image_runtime import describe_image
from distlaunch.checks.request_view import job_request
from distlaunch.job import vertex
from distlaunch.job.load import load_job
from distlaunch.submit.plan import LaunchRequest

TODAY = date(2026, 11, 22)
JOB = """\
name: digits
region: us-central1
image: {repository: us-docker.pkg.dev/a/b/c}
cluster:
  chief: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}
"""
OWN = "FROM python:3.12-slim\nCOPY . .\n"
RDMA = "cluster.chief={machine: a4-highgpu-8g, accelerator: {type: NVIDIA_B200, count: 8}}"
AND_CUDA = "tensorflow[and-cuda]==2.21.0\n"


@pytest.fixture
def found(tmp_path):
    """Return the problems of a job, with files of its folder."""

    def run(*sets, config=None, today=TODAY, **files):
        (tmp_path / "distlaunch.yaml").write_text(JOB)
        for name, text in files.items():
            (tmp_path / name.replace("_txt", ".txt")).write_text(text)
        job = load_job(tmp_path, config=config, overrides=sets).job
        order = LaunchRequest(tmp_path, job, config=config, overrides=sets)
        runtime = describe_image(order) if vertex.needs_image(job) else None
        return list(gpus.problems(order, job_request(order), runtime, today))

    return run


def summarize(problems):
    return [(each.severity, each.code, each.where) for each in problems]


@pytest.mark.parametrize(
    ("image", "is_broken"),
    [
        ("tensorflow/tensorflow:2.18.0-gpu", True),
        ("docker.io/tensorflow/tensorflow:2.21.0-gpu-jupyter", True),
        ("tensorflow/tensorflow:latest-gpu", True),
        ("tensorflow/tensorflow:nightly-gpu", True),
        ("tensorflow/tensorflow:2.17.0-gpu", False),
        ("tensorflow/tensorflow:2.21.0", False),
        ("company/tensorflow:2.21.0-gpu", False),
    ],
)
def test_an_image_of_tensorflow_with_an_old_cudnn(image, is_broken, found):
    expected = [("warning", "image-cuda", "image.base")] if is_broken else []
    assert summarize(found(f"image.base={image}")) == expected
    assert summarize(found(f"image.base={image}", requirements_txt=AND_CUDA)) == []
    named = found("image.repository=", f"image.uri={image}", requirements_txt=AND_CUDA)
    assert summarize(named) == [(*each[:2], "image.uri") for each in expected]
    assert summarize(found(f"image.base={image}", "cluster.chief.accelerator=")) == []
    own = summarize(found(Dockerfile=f"FROM {image}\n", requirements_txt=""))
    assert own == [(*each[:2], "Dockerfile") for each in expected]
    text = f"FROM {image}\nRUN pip install 'tensorflow[and-cuda]==2.21.0'\n"
    assert summarize(found(Dockerfile=text, requirements_txt="")) == []


@pytest.mark.parametrize(
    ("image", "has_ended"),
    [
        ("europe-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest", True),
        ("us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-9.py310:latest", True),
        ("gcr.io/cloud-aiplatform/training/tf-cpu.2-2:latest", True),
        ("us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-18.py310:latest", False),
        ("us-docker.pkg.dev/mine/training/tf-gpu.2-17.py310:latest", False),
    ],
)
def test_an_image_that_google_no_longer_offers(image, has_ended, found, tmp_path):
    expected = [("warning", "image-ended", "image.base")] if has_ended else []
    assert summarize(found(f"image.base={image}")) == expected
    assert summarize(found(f"image.base={image}", today=date(2026, 7, 10))) == []
    config = tmp_path / "config.yaml"
    spec = f"{{executorImageUri: {image}, pythonModule: a.b, packageUris: ['gs://a/b.tar.gz']}}"
    config.write_text(
        "workerPoolSpecs: [{machineSpec: {machineType: n1-standard-4}, replicaCount: 1, "
        f"pythonPackageSpec: {spec}}}]"
    )
    named = found(config=config)
    assert summarize(named) == [(*each[:2], "cluster.chief") for each in expected]


def test_the_users_image_sets_up_nccl_on_machines_with_rdma(found):
    assert summarize(found(RDMA)) == []
    expected = [("warning", "rdma-environment", "cluster.chief")]
    assert summarize(found(RDMA, "image.uri=a/b:1")) == expected
    assert summarize(found(RDMA, Dockerfile=OWN)) == expected
    text = f"{OWN}ENTRYPOINT ['sh', '-c', '. /usr/local/gib/scripts/set_nccl_env.sh && …']\n"
    assert summarize(found(RDMA, Dockerfile=text)) == []
    assert summarize(found("image.uri=a/b:1")) == []


WORKERS = (
    "cluster.workers={machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: %s}}"
)


def test_the_chief_and_the_workers_need_the_same_number_of_gpus(tmp_path):
    def unequal(*overrides, is_bundled=False):
        (tmp_path / "distlaunch.yaml").write_text(JOB)
        job = load_job(tmp_path, overrides=overrides).job
        request = job_request(LaunchRequest(tmp_path, job))
        return summarize(gpus.unequal(request, is_bundled=is_bundled))

    problem = ("accelerators-unequal", "cluster.workers.accelerator.count")
    servers = "cluster.parameter_servers={machine: n1-highmem-8}"
    assert unequal(WORKERS % 2) == [("warning", *problem)]
    assert unequal(WORKERS % 2, servers) == unequal(WORKERS % 1) == []
    assert unequal(WORKERS % 2, is_bundled=True) == [("error", *problem)]
