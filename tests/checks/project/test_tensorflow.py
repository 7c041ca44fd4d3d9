from __future__ import annotations

import importlib.metadata

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from distlaunch.checks.project.requirements import any_version
from distlaunch.checks.project.tensorflow import RELEASES

HASH = " --hash=sha256:" + "0" * 64
GPU = tuple(
    f"cluster.{pool}={{machine: n1-standard-8, accelerator: {{type: NVIDIA_TESLA_T4, count: 1}}}}"
    for pool in ("chief", "workers")
)
TPU = (
    "cluster={chief: {machine: ct5lp-hightpu-4t, accelerator: {type: TPU_V5_LITEPOD, count: 4}}}",
)


def told(made, text, *sets):
    made.write("requirements.txt", text)
    return [
        each
        for each in made.problems(*sets)
        if each.code in ("tensorflow-build", "requirement-clash")
    ]


@pytest.mark.parametrize("words", [(), GPU])
@pytest.mark.parametrize(
    "name", ["tensorflow", "tensorflow-cpu", "tensorflow[and-cuda]", "Tensorflow_CPU"]
)
def test_what_the_image_gets_in_its_place_is_no_problem(words, name, made):
    assert told(made, f"{name}==2.21.0\nkeras>=3.12,<3.16\n", *words) == []


@pytest.mark.parametrize(
    ("text", "words", "severity", "remedy"),
    [
        (f"tensorflow-cpu==2.21.0{HASH}", GPU, "error", "write tensorflow[and-cuda] with hashes"),
        (f"tensorflow==2.21.0{HASH}", GPU, "error", "write tensorflow[and-cuda]"),
        (f"tensorflow[and-cuda]==2.21.0{HASH}", (), "warning", "write tensorflow-cpu"),
        ("tensorflow==2.13.1", GPU, "error", "tensorflow/tensorflow:VERSION-gpu"),
        ("tensorflow==2.21.0", TPU, "warning", "write tensorflow-tpu instead"),
    ],
)
def test_a_build_that_is_not_the_machines_is_told(text, words, severity, remedy, made):
    found = told(made, text, "image.base=python:3.11-slim", *words)
    [problem] = [each for each in found if each.code == "tensorflow-build"]
    assert problem.severity == severity
    assert problem.where == "requirements.txt:1"
    assert remedy in problem.remedy


@pytest.mark.parametrize("name", ["tf-keras", "tensorflow-hub", "tensorflow-text", "keras-hub"])
def test_a_tensorflow_that_only_another_package_requires_has_no_cuda(name, made):
    [problem] = told(made, f"keras>=3.12,<3.16\n{name}<9\n", *GPU)
    assert (problem.code, problem.where) == ("tensorflow-build", "requirements.txt:2")
    assert problem.remedy == "add tensorflow[and-cuda]"
    assert told(made, f"tensorflow==2.21.0\n{name}<9\nkeras>=3.12,<3.16\n", *GPU) == []
    assert told(made, f"keras>=3.12,<3.16\n{name}<9\n") == []


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu"])
def test_a_constraint_cannot_ask_for_cuda(name, made):
    made.write("constraints.txt", f"{name}==2.21.0\n")
    text = "-c constraints.txt\ntensorflow\nkeras>=3.12,<3.16\n"
    [problem] = told(made, text, *GPU)
    assert (problem.code, problem.where) == ("tensorflow-build", "constraints.txt:1")
    assert problem.remedy == "write tensorflow[and-cuda]==2.21.0 in requirements.txt instead"
    assert told(made, text) == []


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
        ("python:3.12", "pip install keras", None),
        ("nvidia/cuda:12.5.1-runtime-ubuntu22.04", "pip install tensorflow==2.21.0", None),
        ("company/base:1", "pip install tensorflow==2.21.0", None),
    ],
)
def test_a_dockerfile_that_installs_tensorflow_without_cuda(base, command, where, made):
    made.write("Dockerfile", f"FROM {base}\nRUN {command}\n")
    silent = "image={repository: us-docker.pkg.dev/a/b/c, base: null}"
    found = told(made, "tensorflow==2.21.0\nkeras>=3.12,<3.16\n", silent, *GPU)
    expected = [("tensorflow-build", "error", where)] if where else []
    assert [(each.code, each.severity, each.where) for each in found] == expected
    assert told(made, "tensorflow==2.21.0\nkeras>=3.12,<3.16\n", silent) == []


@pytest.mark.parametrize(
    ("base", "text", "words", "codes"),
    [
        ("tensorflow/tensorflow:2.17.0", "", GPU, ["tensorflow-build"]),
        ("tensorflow/tensorflow:2.21.0-gpu", "", GPU, []),
        ("tensorflow/tensorflow:2.21.0", "", (), []),
        ("tensorflow/tensorflow:2.21.0", "tensorflow[and-cuda]==2.21.0", GPU, []),
        ("gcr.io/company/tensorflow:1", "", GPU, []),
    ],
)
def test_an_image_of_tensorflows_has_cuda_by_its_tag(base, text, words, codes, made):
    found = told(made, text, f"image.base={base}", *words)
    assert [each.code for each in found] == codes
    if codes:
        assert found[0].where == "image.base"
        assert found[0].remedy == "name tensorflow/tensorflow:2.17.0-gpu"


@pytest.mark.parametrize("tag", [":2.21.0", ":latest-jupyter", ""])
def test_nobody_is_sent_to_an_image_with_an_old_cudnn(tag, made):
    [problem] = told(made, "", f"image.base=tensorflow/tensorflow{tag}", *GPU)
    assert problem.remedy == (
        "say image.base: python:3.12-slim, and write tensorflow[and-cuda] in the requirements"
    )


def test_a_dockerfile_of_ones_own_is_looked_into_for_its_base(made):
    made.write("Dockerfile", "FROM python AS a\nFROM tensorflow/tensorflow\nCOPY . .\n")
    [problem] = told(made, "", *GPU)
    assert problem.where == "Dockerfile"
    assert problem.remedy.startswith("write FROM python:3.12-slim in Dockerfile, and write ")
    assert told(made, "") == []


@pytest.mark.parametrize(
    ("text", "base", "where", "remedy"),
    [
        ("tensorflow==2.21.0\nkeras==3.10.0", "3.12", 2, "write keras>=3.12"),
        ("tensorflow==2.18.0\nnumpy==2.3.1", "3.12", 2, "write numpy>=1.26,<2.1"),
        ("tensorflow==2.21.*\nprotobuf<5", "3.12", 2, "write protobuf>=6.31.1,<8"),
        ("tensorflow~=2.16.1\nnumpy>=2", "3.12", 2, "write numpy>=1.23.5,<2"),
        ("tensorflow>=2.16,<2.19\nnumpy>=2.2", "3.12", 2, "write numpy>=1.26,<2.1"),
        ("tensorflow==2.20.0\ntf-keras==2.19.0", "3.12", 2, "write tf-keras>=2.20,<2.21"),
        ("tensorflow==2.21.0", "3.9", 1, "say image.base: python:3.10-slim"),
        ("tensorflow==2.21.0", "3.14", 1, "say image.base: python:3.13-slim"),
        ("tensorflow==2.15.0", "3.12", 1, "say image.base: python:3.11-slim"),
        ("tensorflow==2.12.0", "3.12", 1, "say image.base: python:3.11-slim"),
        ("tensorflow-cpu==2.11.1", "3.12", 1, "say image.base: python:3.10-slim"),
        ("tensorflow==2.8.0", "3.12", 1, "say image.base: python:3.10-slim"),
        ("tensorflow~=2.4.0", "3.12", 1, "say image.base: python:3.8-slim"),
        ("tensorflow<2", "3.12", 1, "say image.base: python:3.7-slim"),
        ("tensorflow==1.15.5", "3.11", 1, "say image.base: python:3.7-slim"),
        ("tensorflow>=2.10,<2.16", "3.12", 1, "say image.base: python:3.11-slim"),
    ],
)
def test_what_tensorflow_does_not_go_with_is_refused(text, base, where, remedy, plain):
    found = told(plain, text, f"image.base=python:{base}-slim")
    assert [(each.code, each.severity, each.where) for each in found] == [
        ("requirement-clash", "error", f"requirements.txt:{where}")
    ]
    assert found[0].remedy == remedy


@pytest.mark.parametrize("text", ["tensorflow==2.12.0", "tensorflow-cpu==2.11.1"])
def test_with_a_python_that_it_is_for_an_old_tensorflow_is_no_problem(text, plain):
    assert told(plain, text, "image.base=python:3.10-slim") == []


@pytest.mark.parametrize(
    ("text", "base", "words", "remedy"),
    [
        ("tensorflow-gpu==2.10.0", "3.12", (), "write tensorflow, of 2.14 or later"),
        ("tensorflow-gpu==2.10.0", "3.12", GPU, "write tensorflow, of 2.14 or later"),
        ("tensorflow-gpu==2.10.0", "3.10", GPU, "write tensorflow, of 2.14 or later"),
        ("tensorflow-gpu==2.12.0", "3.10", (), "write tensorflow, of 2.14 or later"),
        ("tensorflow-gpu", "3.10", (), "write tensorflow, of 2.14 or later"),
        ("tensorflow-macos==2.16.2", "3.12", (), "tensorflow-macos==2.16.2; sys_platform != "),
        ("tensorflow-metal", "3.12", (), "write tensorflow-metal; sys_platform != 'linux'"),
    ],
)
def test_a_build_that_pip_does_not_find_is_told(text, base, words, remedy, made):
    [problem] = told(made, text, f"image.base=python:{base}-slim", *words)
    assert (problem.code, problem.severity) == ("tensorflow-build", "error")
    assert problem.where == "requirements.txt:1"
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("tensorflow-gpu==2.10.0", "3.10"),
        ("tensorflow-gpu==2.10.0; python_version < '3.11'", "3.12"),
        ("tensorflow-macos==2.16.2; sys_platform == 'darwin'", "3.12"),
    ],
)
def test_a_build_that_pip_finds_or_leaves_out_is_not(text, base, made):
    assert told(made, text, f"image.base=python:{base}-slim") == []


@pytest.mark.parametrize(
    "text",
    [
        "tensorflow>=2.16\nnumpy>=2.2",
        "tensorflow<2.19\nnumpy<2",
        "tensorflow==2.30.0\nnumpy<1",
        "tensorflow==2.21.0\nnumpy>=1.20",
        "tf-nightly\nkeras==3.1",
    ],
)
def test_what_may_go_together_is_left_to_pip(text, plain):
    assert told(plain, text, "image.base=python:3.12") == []


def test_the_bundled_trainer_is_held_to_the_keras_that_it_was_made_for(made):
    [problem] = told(made, "tensorflow==2.20.0\nkeras==3.10.0\n")
    assert problem.severity == "warning"
    assert problem.remedy == "write keras>=3.12,<3.16"


def test_what_is_known_of_the_release_that_is_here_is_what_it_says():
    here = importlib.metadata.distribution("tensorflow-cpu")
    release = Version(here.version)
    known = RELEASES[release.major, release.minor]
    said = {each.name: each.specifier for each in map(Requirement, here.requires or ())}
    for name, need in known.needs.items():
        found = next(spec for each, spec in said.items() if each.replace("_", "-") == name)
        for bound in [*SpecifierSet(need), *found]:
            version = bound.version
            assert found.contains(version) == SpecifierSet(need).contains(version), (name, bound)
        assert any_version([SpecifierSet(need), found])
