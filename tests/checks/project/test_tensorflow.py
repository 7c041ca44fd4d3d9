from __future__ import annotations

import pytest

from distlaunch.job.model import DEFAULT_BASE

HASH = " --hash=sha256:" + "0" * 64
GPU = tuple(
    f"cluster.{pool}={{machine: n1-standard-8, accelerator: {{type: NVIDIA_TESLA_T4, count: 1}}}}"
    for pool in ("chief", "workers")
)
TPU = (
    "cluster={chief: {machine: ct5lp-hightpu-4t, accelerator: {type: TPU_V5_LITEPOD, count: 4}}}",
)
AND_CUDA = "write tensorflow[and-cuda]"
DEFAULT = "image={repository: us-docker.pkg.dev/a/b/c, base: null}"


def found(project, text, *overrides):
    project.write("requirements.txt", text)
    problems = project.problems(*overrides)
    return [each for each in problems if each.code == "tensorflow-build"]


@pytest.mark.parametrize("overrides", [(), GPU])
@pytest.mark.parametrize(
    "name", ["tensorflow", "tensorflow-cpu", "tensorflow[and-cuda]", "Tensorflow_CPU"]
)
def test_the_image_gets_the_build_for_the_machines(overrides, name, bundled):
    assert found(bundled, f"{name}==2.21.0\nkeras>=3.12,<3.16\n", *overrides) == []


@pytest.mark.parametrize(
    ("text", "overrides", "severity", "remedy"),
    [
        (f"tensorflow-cpu==2.21.0{HASH}", GPU, "error", f"{AND_CUDA} with its hashes"),
        (f"tensorflow==2.21.0{HASH}", GPU, "error", AND_CUDA),
        (f"tensorflow[and-cuda]==2.21.0{HASH}", (), "warning", "write tensorflow-cpu"),
        ("tensorflow==2.13.1", GPU, "error", "tensorflow/tensorflow:VERSION-gpu"),
        ("tensorflow==2.21.0", TPU, "warning", "write tensorflow-tpu"),
    ],
)
def test_a_build_for_other_machines(text, overrides, severity, remedy, bundled):
    [problem] = found(bundled, text, "image.base=python:3.11-slim", *overrides)
    assert (problem.severity, problem.where) == (severity, "requirements.txt:1")
    assert remedy in problem.remedy


def test_a_tensorflow_that_only_another_package_requires_has_no_cuda(bundled):
    [problem] = found(bundled, "keras>=3.12,<3.16\ntf-keras<9\n", *GPU)
    assert (problem.where, problem.remedy) == ("requirements.txt:2", "add tensorflow[and-cuda]")
    assert found(bundled, "tensorflow==2.21.0\ntf-keras<9\n", *GPU) == []
    assert found(bundled, "tf-keras<9\n") == []


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu"])
def test_a_constraint_cannot_have_extras(name, bundled):
    bundled.write("constraints.txt", f"{name}==2.21.0\n")
    [problem] = found(bundled, "-c constraints.txt\ntensorflow\n", *GPU)
    assert problem.where == "constraints.txt:1"
    assert problem.remedy == "write tensorflow[and-cuda]==2.21.0 in requirements.txt"
    assert found(bundled, "-c constraints.txt\ntensorflow\n") == []


@pytest.mark.parametrize(
    ("base", "command", "where"),
    [
        ("python:3.12-slim", "pip install tensorflow==2.21.0", "Dockerfile:2"),
        ("ubuntu:24.04", "apt-get update && pip3 install -U 'tensorflow-cpu>=2'", "Dockerfile:2"),
        ("python:3.12", "pip install -r requirements.txt wandb", "requirements.txt:1"),
        ("python:3.12", "pip install -q \\\n  numpy \\\n  tensorflow==2.21.0", "Dockerfile:2"),
        ("python:3.12", "pip install 'tensorflow[and-cuda]==2.21.0'", None),
        ("python:3.12", "pip install tensorflow nvidia-cudnn-cu12", None),
        ("tensorflow/tensorflow:2.21.0", "pip install 'tensorflow[and-cuda]==2.21.0'", None),
        ("nvidia/cuda:12.5.1-runtime-ubuntu22.04", "pip install tensorflow==2.21.0", None),
    ],
)
def test_a_dockerfile_that_installs_tensorflow_without_cuda(base, command, where, bundled):
    bundled.write("Dockerfile", f"FROM {base}\nRUN {command}\n")
    problems = found(bundled, "tensorflow==2.21.0\n", DEFAULT, *GPU)
    assert [(each.severity, each.where) for each in problems] == (
        [("error", where)] if where else []
    )
    assert found(bundled, "tensorflow==2.21.0\n", DEFAULT) == []


@pytest.mark.parametrize(
    ("tag", "text", "overrides", "remedy"),
    [
        (":2.17.0", "", GPU, "set image.base: tensorflow/tensorflow:2.17.0-gpu"),
        (
            ":2.21.0",
            "",
            GPU,
            f"set image.base: {DEFAULT_BASE}, and {AND_CUDA} in the requirements",
        ),
        (":2.21.0-gpu", "", GPU, None),
        (":2.21.0", "", (), None),
        (":2.21.0", "tensorflow[and-cuda]==2.21.0", GPU, None),
    ],
)
def test_an_image_of_tensorflow_has_cuda_by_its_tag(tag, text, overrides, remedy, bundled):
    base = f"tensorflow/tensorflow{tag}"
    problems = found(bundled, text, f"image.base={base}", *overrides)
    assert [(each.where, each.remedy) for each in problems] == (
        [("image.base", remedy)] if remedy else []
    )
    bundled.write("Dockerfile", f"FROM python AS a\nFROM {base}\nCOPY . .\n")
    problems = found(bundled, text, DEFAULT, *overrides)
    assert [each.where for each in problems] == (["Dockerfile"] if remedy else [])
