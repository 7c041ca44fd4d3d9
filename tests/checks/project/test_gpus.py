from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from distlaunch.checks.project import gpus
from distlaunch.checks.project.image_runtime import describe_image
from distlaunch.job import machine_catalogue, vertex
from distlaunch.job.load import load_job
from distlaunch.job.model import DEFAULT_BASE
from distlaunch.job.vertex.view import job_request

KNOWN = machine_catalogue.load(None)
RDMA = (
    "cluster={chief: {machine: a3-ultragpu-8g, accelerator: {type: NVIDIA_H200_141GB, count: 8}}}"
)
TPU = "cluster={chief: {machine: ct5lp-hightpu-4t, accelerator: {type: TPU_V5_LITEPOD, count: 4}}}"
REPOSITORY = "us-docker.pkg.dev/a/b/c"
DEFAULT = f"image={{repository: {REPOSITORY}, base: null}}"
PYTHON, AND_CUDA = "image.base=python:3.11-slim", "write tensorflow[and-cuda]"
HASH = " --hash=sha256:" + "0" * 64


def image_problems(project, *overrides, config=None, today=date(2026, 11, 22)):
    order = project.order(*overrides)
    if config:
        job = load_job(project.folder, config=config, overrides=overrides).job
        order = replace(order, job=job, config=config)
    runtime = describe_image(order) if vertex.needs_image(order.job) else None
    problems = gpus.problems(order, job_request(order), KNOWN, runtime, today)
    return [(each.severity, each.code, each.where) for each in problems]


@pytest.mark.parametrize(
    ("machine", "accelerator", "count", "is_named"),
    [
        ("a4-highgpu-8g", "NVIDIA_B200", 8, True),
        ("a4x-highgpu-4g", "NVIDIA_GB200", 4, True),
        ("g4-standard-48", "NVIDIA_RTX_PRO_6000", 1, True),
        ("a3-ultragpu-8g", "NVIDIA_H200_141GB", 8, False),
        ("n1-standard-8", "NVIDIA_TESLA_T4", 1, False),
    ],
)
def test_gpus_that_tensorflow_has_no_kernels_for(machine, accelerator, count, is_named, plain):
    taken = f"{{machine: {machine}, accelerator: {{type: {accelerator}, count: {count}}}}}"
    expected = [("warning", "gpu-no-kernels", "cluster.chief.accelerator")] * is_named
    assert image_problems(plain, f"cluster={{chief: {taken}}}") == expected
    nvidia = "image.base=nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
    assert image_problems(plain, f"cluster={{chief: {taken}}}", nvidia) == []


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
def test_an_image_of_tensorflow_with_an_old_cudnn(image, is_broken, plain):
    def summary(image, gpus=1):
        return image_problems(plain, plain.cluster(1, gpus), f"image={{{image}}}")

    expected = [("warning", "image-cuda", "image.base")] * is_broken
    base = f"repository: {REPOSITORY}, base: '{image}'"
    assert summary(base) == expected
    assert summary(base, gpus=0) == []
    plain.write("requirements.txt", "tensorflow[and-cuda]==2.21.0\n")
    assert summary(base) == []
    assert summary(f"uri: '{image}'") == [(*each[:2], "image.uri") for each in expected]
    plain.write("requirements.txt", "")
    plain.write("Dockerfile", f"FROM {image}\n")
    own = f"repository: {REPOSITORY}"
    assert summary(own) == [(*each[:2], "Dockerfile") for each in expected]
    plain.prepend("Dockerfile", "# RUN pip install 'tensorflow[and-cuda]==2.21.0'\n")
    assert summary(own) == []


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
def test_an_image_that_google_no_longer_offers(image, has_ended, plain):
    base = f"image={{repository: {REPOSITORY}, base: '{image}'}}"
    assert image_problems(plain, base) == [("warning", "image-ended", "image.base")] * has_ended
    assert image_problems(plain, base, today=date(2026, 7, 10)) == []
    spec = f"{{executorImageUri: {image}, pythonModule: a.b, packageUris: ['gs://a/b.tar.gz']}}"
    plain.write(
        "config.yaml",
        "workerPoolSpecs: [{machineSpec: {machineType: n1-standard-4}, replicaCount: 1, "
        f"pythonPackageSpec: {spec}}}]",
    )
    expected = [("warning", "image-ended", "cluster.chief")] * has_ended
    assert image_problems(plain, config=plain.folder / "config.yaml") == expected


def test_the_users_image_sets_up_nccl_on_machines_with_rdma(plain):
    expected = [("warning", "rdma-environment", "cluster.chief")]
    assert image_problems(plain, RDMA, DEFAULT) == []
    assert image_problems(plain, RDMA, "image={uri: 'a/b:1'}") == expected
    plain.write("Dockerfile", "FROM python:3.12-slim\nCOPY . .\n")
    assert image_problems(plain, RDMA, DEFAULT) == expected
    plain.prepend("Dockerfile", "# /usr/local/gib/scripts/set_nccl_env.sh\n")
    assert image_problems(plain, RDMA, DEFAULT) == []
    assert image_problems(plain, "image={uri: 'a/b:1'}") == []


def test_the_chief_and_the_workers_need_the_same_number_of_gpus(plain):
    def unequal(cluster, *, is_bundled=False):
        problems = gpus.unequal(job_request(plain.order(cluster)), is_bundled=is_bundled)
        return [(each.severity, each.code, each.where) for each in problems]

    problem = ("accelerators-unequal", "cluster.workers.accelerator.count")
    workers = "machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4, count: 2}"
    different = plain.cluster(1, gpus=1).replace("}}}", f"}}}}, workers: {{{workers}}}}}")
    servers = f"{different[:-1]}, parameter_servers: {{machine: n1-highmem-8}}}}"
    assert unequal(different) == [("warning", *problem)]
    assert unequal(servers) == unequal(plain.cluster(2, gpus=1)) == []
    assert unequal(different, is_bundled=True) == [("error", *problem)]


def builds(project, text, *overrides):
    project.write("requirements.txt", text)
    problems = project.problems(*overrides)
    return [each for each in problems if each.code == "tensorflow-build"]


def test_the_image_gets_the_build_for_the_machines(bundled):
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow[and-cuda]", "Tensorflow_CPU"):
        for cluster in (bundled.cluster(2), bundled.cluster(2, gpus=1)):
            assert builds(bundled, f"{name}==2.21.0\n", cluster) == []


@pytest.mark.parametrize(
    ("text", "gpus", "severity", "remedy"),
    [
        (f"tensorflow-cpu==2.21.0{HASH}", 1, "error", f"{AND_CUDA} with its hashes"),
        (f"tensorflow==2.21.0{HASH}", 1, "error", AND_CUDA),
        (f"tensorflow[and-cuda]==2.21.0{HASH}", 0, "warning", "write tensorflow-cpu"),
        ("tensorflow==2.13.1", 1, "error", "tensorflow/tensorflow:VERSION-gpu"),
        ("tensorflow==2.21.0", None, "error", "write tensorflow-tpu"),
    ],
)
def test_a_build_for_other_machines(text, gpus, severity, remedy, bundled):
    cluster = TPU if gpus is None else bundled.cluster(2, gpus)
    [problem] = builds(bundled, text, PYTHON, cluster)
    assert (problem.severity, problem.where) == (severity, "requirements.txt:1")
    assert remedy in problem.remedy


def test_a_tensorflow_that_only_another_package_requires_has_no_cuda(bundled):
    with_gpus = bundled.cluster(2, gpus=1)
    [problem] = builds(bundled, "keras>=3.12,<3.16\ntf-keras<9\n", with_gpus)
    assert (problem.where, problem.remedy) == ("requirements.txt:2", "add tensorflow[and-cuda]")
    assert builds(bundled, "tensorflow==2.21.0\ntf-keras<9\n", with_gpus) == []
    assert builds(bundled, "tf-keras<9\n") == []


def test_a_constraint_cannot_have_extras(bundled):
    text = "-c constraints.txt\ntensorflow\n"
    for name in ("tensorflow", "tensorflow-cpu"):
        bundled.write("constraints.txt", f"{name}==2.21.0\n")
        [problem] = builds(bundled, text, bundled.cluster(2, gpus=1))
        assert problem.where == "constraints.txt:1"
        assert problem.remedy == "write tensorflow[and-cuda]==2.21.0 in requirements.txt"
        assert builds(bundled, text) == []


@pytest.mark.parametrize(
    ("tag", "text", "gpus", "remedy"),
    [
        ("2.17.0", "", 1, "set image.base: tensorflow/tensorflow:2.17.0-gpu"),
        ("2.21.0", "", 1, f"set image.base: {DEFAULT_BASE}, and {AND_CUDA} in the requ"),
        ("2.21.0-gpu", "", 1, None),
        ("2.21.0", "", 0, None),
        ("2.21.0", "tensorflow[and-cuda]==2.21.0", 1, None),
    ],
)
def test_an_image_of_tensorflow_has_cuda_by_its_tag(tag, text, gpus, remedy, bundled):
    base, cluster = f"tensorflow/tensorflow:{tag}", bundled.cluster(2, gpus)
    problems = builds(bundled, text, f"image.base={base}", cluster)
    assert [each.where for each in problems] == (["image.base"] if remedy else [])
    assert all(each.remedy.startswith(remedy) for each in problems)
    bundled.write("Dockerfile", f"FROM python AS a\nFROM {base}\nCOPY . .\n")
    problems = builds(bundled, text, DEFAULT, cluster)
    assert [each.where for each in problems] == (["Dockerfile"] if remedy else [])
