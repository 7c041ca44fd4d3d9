from __future__ import annotations

import importlib.metadata

import pytest
from packaging.requirements import Requirement

from distlaunch.checks.project import distributions


def told(made, *sets):
    return [each for each in made.problems(*sets) if "requirement" not in each.code]


def one(made, *sets):
    [problem] = told(made, *sets)
    return problem


def test_what_no_requirement_brings_is_refused_with_the_requirement(made):
    made.begin("trainer/model.py", "import seaborn.objects\n")
    problem = one(made)
    assert (problem.code, problem.severity) == ("import-missing", "error")
    assert problem.where == "trainer/model.py:1"
    assert problem.remedy == (
        "add seaborn==VERSION to requirements.txt ('pip index versions seaborn' lists them)"
    )


def test_what_this_machine_has_is_asked_for_in_its_version(made):
    made.begin("trainer/model.py", "import yaml\n")
    version = importlib.metadata.version("pyyaml")
    assert one(made).remedy == f"add pyyaml=={version} to requirements.txt"


@pytest.mark.parametrize("line", ["from distlaunch import job", "import distlaunch"])
def test_distlaunch_itself_is_not_asked_of_pip(line, made):
    made.begin("trainer/model.py", f"{line}\n")
    problem = one(made)
    assert (problem.code, problem.severity) == ("import-missing", "error")
    assert "holds nothing of distlaunch" in problem.what
    assert "requirements.txt" not in problem.remedy


@pytest.mark.parametrize(
    ("requirement", "line"),
    [
        ("pandas==2.3.1", "import pandas as pd"),
        ("pandas==2.3.1", "import dateutil.parser"),
        ("Scikit_Learn==1.7.0", "from sklearn import metrics"),
        ("opencv-python-headless==4.11.0.86", "import cv2"),
        ("google-cloud-storage==3.1.0", "from google.cloud import storage"),
        ("google-cloud-storage==3.1.0", "import google.cloud.storage as s"),
        ("google-cloud-storage==3.1.0", "import google.auth"),
        ("google-cloud-secret-manager==2.24.0", "from google.cloud import secretmanager_v1"),
        ("google-cloud-aiplatform==2.7.0", "from google.cloud import bigquery"),
        ("acme-utils==1.0", "import acme.things"),
        ("acme-utils==1.0", "import acme_utils"),
        ("pyacme==1.0", "import acme"),
        ("acme @ git+https://example.com/acme.git@v1.0", "import acme"),
        ("https://example.com/acme-1.0-py3-none-any.whl", "import acme"),
        ("", "import numpy, h5py, absl.flags, google.protobuf, requests, six, packaging"),
        ("", "import keras, tensorflow.keras.layers, tensorflow as tf, rich"),
        ("", "import json, os.path, winreg, distutils.util, __future__"),
        ("", "try:\n    import wandb\nexcept ImportError:\n    wandb = None"),
        ("", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import wandb"),
        ("", "from . import data\nfrom .data import training\nfrom trainer import __version__"),
    ],
)
def test_what_is_brought_is_no_problem(requirement, line, made):
    requirements = (made.folder / "requirements.txt").read_text()
    made.write("requirements.txt", f"{requirements}\n{requirement}\n")
    made.begin("trainer/model.py", f"{line}\n")
    assert told(made) == []


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("from trainer import modle", "trainer has no 'modle'", "did you mean 'model'?"),
        ("from .data import trainig", "trainer.data has no 'trainig'", "write it"),
        ("from .dta import training", "no module trainer.dta", "did you mean 'data'?"),
        ("import trainer.models", "no module trainer.models", "did you mean 'model'?"),
        ("from ..data import training", "leads out of the package", "trainer.data"),
        ("import data", "no module data where", "write 'from trainer import data'"),
        ("from google.cloud import storage", "google-cloud-storage", "google-cloud-storage"),
        ("import telnetlib", "nothing that pip installs brings telnetlib", "add telnetlib"),
    ],
)
def test_what_will_not_be_found_is_told_with_what_will(line, what, remedy, made):
    made.begin("trainer/model.py", f"{line}\n")
    base = "image.base=python:3.13-slim"
    if "telnetlib" in line:
        what, remedy = "Python 3.13 has no telnetlib any more", "do without it"
    problem = one(made, base)
    assert (problem.code, problem.severity) == ("import-missing", "error")
    assert problem.where == "trainer/model.py:1"
    assert what in problem.what
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    "line",
    [
        "def later():\n    import wandb",
        "if something:\n    import wandb",
        "import sys\nsys.path.insert(0, '/mnt/code')\nimport wandb",
    ],
)
def test_what_may_not_be_imported_or_lie_elsewhere_is_a_warning(line, made):
    made.begin("trainer/model.py", f"{line}\n")
    assert [(each.code, each.severity) for each in told(made)] == [("import-missing", "warning")]


@pytest.mark.parametrize(
    ("sets", "severity"),
    [
        (("env.PYTHONPATH=/mnt/code",), "warning"),
        (("image.base=tensorflow/tensorflow:2.21.0",), "warning"),
        (("image.base=docker.io/library/python:3.12",), "error"),
    ],
)
def test_how_sure_it_is_lies_with_what_is_known_of_the_image(sets, severity, made):
    made.begin("trainer/model.py", "import wandb\n")
    assert one(made, *sets).severity == severity


def test_a_requirement_that_nothing_is_known_of_may_bring_anything(made):
    made.begin("trainer/model.py", "import wandb\n")
    made.write("requirements.txt", "tensorflow-cpu==2.21.0\ncompany-things==1.0\n")
    assert one(made).severity == "warning"


def test_a_base_of_which_nothing_is_known_may_have_anything(made):
    made.begin("trainer/model.py", "import wandb\n")
    assert told(made, "image.base=gcr.io/company/base:1") == []


def test_of_a_chain_of_imports_the_last_is_told_and_each_only_once(made):
    made.begin("trainer/model.py", "import trainer.deep.layers\n")
    made.write("trainer/deep/__init__.py", "from . import layers\n")
    made.write("trainer/deep/layers.py", "import wandb\nimport wandb.sdk\n")
    made.begin("trainer/data.py", "import wandb\n")
    assert one(made).severity == "error"


def test_a_file_that_is_never_imported_needs_nothing(made):
    made.write("trainer/plots.py", "import wandb\n")
    assert told(made) == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("helpers.py", "import helpers"),
        ("common/__init__.py", "from common import things"),
        ("common/things.py", "import common.things"),
    ],
)
def test_a_module_of_the_project_that_is_not_let_in_is_told_with_the_key(path, line, made):
    made.write(path, "")
    made.write("common/things.py", "")
    made.begin("trainer/model.py", f"{line}\n")
    problem = one(made)
    top = path.partition("/")[0]
    assert (problem.code, problem.severity) == ("module-not-in-image", "error")
    assert problem.remedy == f"add {top} to image.include in distlaunch.yaml"
    assert told(made, f"image.include=[data, {top}]") == []


def test_a_module_that_ones_own_ignore_file_leaves_out_is_told_with_that_file(made):
    made.write(".dockerignore", "trainer/secret.py\n")
    made.write("trainer/secret.py", "")
    made.begin("trainer/model.py", "from trainer import secret\n")
    problem = one(made)
    assert problem.code == "module-not-in-image"
    assert problem.remedy == "let trainer/secret.py in in .dockerignore"


def test_without_any_requirements_tensorflow_is_missing(made):
    (made.folder / "requirements.txt").unlink()
    problems = made.problems("image={repository: us-docker.pkg.dev/a/b/c}")
    assert {(each.code, each.severity) for each in problems} == {("import-missing", "error")}
    assert any("add tensorflow" in each.remedy for each in problems)


INSTALLED = {
    distributions.canonical(each.metadata["Name"]): each
    for each in importlib.metadata.distributions()
}
KNOWN = [
    name for name in sorted(INSTALLED) if distributions.closure([name])[1] and name != "tensorflow"
]


def test_what_is_known_of_distributions_is_held_against_some():
    assert len(KNOWN) > 40


@pytest.mark.parametrize("name", KNOWN)
def test_what_a_distribution_requires_is_known(name):
    brought, _ = distributions.closure([name])
    asked = [Requirement(each) for each in INSTALLED[name].requires or ()]
    environment = {"extra": "", "sys_platform": "linux", "platform_system": "Linux"}
    needed = {
        distributions.canonical(each.name)
        for each in asked
        if each.marker is None or each.marker.evaluate(environment)
    }
    assert needed <= brought


def test_which_distribution_brings_a_module_is_known():
    for module, names in importlib.metadata.packages_distributions().items():
        found = {distributions.canonical(name) for name in names}.intersection(KNOWN)
        if found and module.isidentifier() and module[0] != "_" and module != "google":
            assert found.intersection(distributions.providers(module)), module
