from __future__ import annotations

import importlib.metadata
import sys

import pytest

from distlaunch.checks.project.imports import read_source
from distlaunch.errors import ImageError

BROKEN = "def create_model(:\n    pass\n"
MODEL = "trainer/model.py"
OWN = "image={repository: us-docker.pkg.dev/a/b/c}"


def only(project, *overrides):
    [problem] = project.problems(*overrides)
    return problem


def test_new_projects_have_no_problems(whole, bundled, plain):
    assert whole.problems() == bundled.problems() == plain.problems() == []


def test_only_files_that_the_program_imports_are_parsed(ejected):
    ejected.write("distlaunch_trainer/run.py", "\n" + BROKEN)
    ejected.write("trainer/unused.py", "print 'old'\n")
    broken = ("source-syntax", "error", "distlaunch_trainer/run.py:2:18")
    assert ejected.summary() == [broken]
    ejected.prepend(MODEL, "def later():\n    import trainer.unused\n")
    assert ejected.summary() == [broken, ("source-syntax", "error", "trainer/unused.py:1:1")]


def test_syntax_of_another_python_than_the_one_here(bundled):
    newer = f"image.base=python:3.{sys.version_info.minor + 1}-slim"
    bundled.write(MODEL, "def (:\n")
    assert only(bundled, newer).severity == "error"
    bundled.write(MODEL, "def f[T](:\n")
    problem = only(bundled, newer)
    assert problem.severity == "warning"
    assert f"Python 3.{sys.version_info.minor + 1}" in problem.remedy


def test_a_missing_module_and_a_package_that_is_run_by_its_main(whole):
    for module, remedy in (
        ("trainer.tsk", "trainer.task"),
        ("trainer.qqqqqqqqqqqqqqqq", "python -m"),
        ("trainer", "name a module in it, e.g. trainer.task"),
        ("trainer.tasks.py", "'trainer.task'"),
    ):
        problem = only(whole, f"module={module}", "args=[]")
        assert (problem.code, problem.where) == ("module-missing", "module")
        assert remedy in problem.remedy
    whole.write("trainer/__main__.py", "import trainer.task\n")
    assert whole.problems("module=trainer") == []


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("from trainer import modle", "no module trainer.modle", "did you mean 'model'?"),
        ("from .dta import training", "no module trainer.dta", "did you mean 'data'?"),
        ("from ..data import training", "leads out of the package", "from trainer.data"),
        ("import data", "no module data in the folder", "write 'from trainer import data'"),
        ("from google.cloud import storage", "google-cloud-storage", "google-cloud-storage"),
        ("import seaborn.objects", "no requirement provides seaborn", "add seaborn==VERSION to "),
    ],
)
def test_a_missing_import(line, what, remedy, bundled):
    bundled.prepend(MODEL, f"{line}\n")
    problem = only(bundled)
    assert (problem.code, problem.severity) == ("import-missing", "error")
    assert problem.where == f"{MODEL}:1"
    assert what in problem.what
    assert remedy in problem.remedy


def test_a_namespace_package_is_looked_into(bundled):
    text = (bundled.folder / "requirements.txt").read_text()
    bundled.write("requirements.txt", f"{text}\ngoogle-cloud-storage<99\n")
    bundled.prepend(MODEL, "from google.cloud import storage, vision\nimport yaml\n")
    version = importlib.metadata.version("pyyaml")
    assert [each.remedy for each in bundled.problems()] == [
        "add google-cloud-vision==VERSION to requirements.txt "
        "('pip index versions google-cloud-vision' lists the versions)",
        f"add pyyaml=={version} to requirements.txt",
    ]


@pytest.mark.parametrize(
    ("requirement", "line"),
    [
        ("", "import numpy, h5py, google.protobuf"),  # required by TensorFlow
        ("", "from trainer import __version__"),
        ("", "import distlaunch_trainer, distlaunch_trainer.options"),  # of the image's environment
        ("Scikit_Learn==1.7.0", "from sklearn import metrics"),
        ("opencv-python-headless==4.11.0.86", "import cv2"),
        ("google-cloud-storage", "from google.cloud import storage"),
        ("google-cloud-storage", "import google.cloud.storage, google.auth, requests"),
        ("google-cloud-secret-manager==2.24.0", "from google.cloud import secretmanager_v1"),
        ("acme-utils==1.0", "import acme.things"),
        ("acme @ https://example.com/acme.tar.gz", "import acme"),
        ("https://example.com/acme-1.0-py3-none-any.whl", "import acme"),
    ],
)
def test_an_import_that_a_requirement_provides(requirement, line, bundled):
    text = (bundled.folder / "requirements.txt").read_text()
    bundled.write("requirements.txt", f"{text}\n{requirement}\n")
    bundled.prepend(MODEL, f"{line}\n")
    assert [each for each in bundled.summary() if each[0] != "requirement-unpinned"] == []


@pytest.mark.parametrize(
    ("requirement", "shown"),
    [("company-things==1.0", "company-things"), ("keras==3.99", "keras")],
)
def test_imports_are_not_verified_if_a_requirement_is_not_installed(requirement, shown, bundled):
    bundled.write("requirements.txt", f"tensorflow-cpu==2.21.0\n{requirement}\n")
    bundled.prepend(MODEL, "import gensim\n")
    [problem] = [each for each in bundled.problems() if each.code == "import-missing"]
    assert problem.severity == "warning"
    assert problem.what.startswith("not verified that a requirement provides gensim: ")
    assert f"{shown} not installed here" in problem.what


@pytest.mark.parametrize(
    ("line", "override"),
    [
        ("def later():\n    import gensim", "args=[]"),
        ("import sys\nsys.path.insert(0, '/mnt/code')\nimport gensim", "args=[]"),
        ("import gensim", "image.base=tensorflow/tensorflow:2.21.0"),
    ],
)
def test_an_import_that_may_succeed_is_a_warning(line, override, bundled):
    bundled.prepend(MODEL, f"{line}\n")
    assert only(bundled, override).severity == "warning"
    assert bundled.problems("image.base=gcr.io/company/base:1") == []


def test_each_module_is_reported_once_and_as_an_error_if_one_import_is_required(bundled):
    bundled.prepend(MODEL, "import trainer.deep.layers\n\ndef f():\n    import gensim\n")
    bundled.write("trainer/deep/__init__.py", "from . import layers\n")
    bundled.write("trainer/deep/layers.py", "import gensim\nimport gensim.models\n")
    bundled.write("trainer/unused.py", "import seaborn\n")
    assert bundled.summary() == [("import-missing", "error", "trainer/deep/layers.py:1")]


@pytest.mark.parametrize(
    ("path", "line"),
    [("helpers.py", "import helpers"), ("common/things.py", "from common import things")],
)
def test_a_module_that_is_not_in_the_image(path, line, bundled):
    bundled.write(path, "")
    bundled.prepend(MODEL, f"{line}\n")
    problem = only(bundled)
    top = path.partition("/")[0]
    assert (problem.code, problem.severity) == ("module-not-in-image", "error")
    assert problem.remedy == f"add {top} to image.include in distlaunch.yaml"
    assert bundled.problems(f"image.include=[data, {top}]") == []
    bundled.write(".dockerignore", f"{top}\n")
    assert only(bundled).remedy.endswith("in .dockerignore")


def test_a_src_layout_is_checked_but_with_a_pythonpath(plain):
    plain.write("src/deep/program.py", "from deep import data\n")
    plain.write("src/deep/data.py", "import gensim\nimport deep.program\n")
    problem = only(plain, "module=deep.program", OWN)
    assert (problem.where, problem.code) == ("src/deep/data.py:1", "import-missing")
    problem = only(plain, "module=deep.progam", OWN)
    assert (problem.code, "'deep.program'" in problem.remedy) == ("module-missing", True)
    (plain.folder / "deep").mkdir()  # of the image's module
    overrides = ("module=deep.program", "image.include=[src]", "env.PYTHONPATH=/app/src")
    assert plain.problems(*overrides) == []


def test_a_module_of_a_requirement_is_taken(plain):
    plain.write("requirements.txt", "tf-models-official==2.16.0\n")
    assert plain.problems("module=official.vision.train", OWN) == []
    plain.write("requirements.txt", "https://example.com/models.tar.gz\n")  # of unknown modules
    assert plain.problems("module=official.vision.train", OWN) == []
    with pytest.raises(ImageError, match="neither the folder progam nor"):
        plain.problems("module=progam", OWN)


def test_an_unknown_image_of_the_users_dockerfile_may_have_any_module(bundled):
    install = "RUN pip install --no-index distlaunch_trainer"
    bundled.write("Dockerfile", f"FROM company/base\nCOPY . /srv\n{install}\nENTRYPOINT train\n")
    bundled.prepend(MODEL, "import company_library\n")
    assert bundled.problems("module=other.program", OWN) == []
    bundled.write(MODEL, BROKEN)
    assert bundled.summary(OWN) == [("source-syntax", "error", f"{MODEL}:1:18")]


def test_the_other_rules_do_not_need_the_files_of_the_image(bundled):
    overrides = ("image.requirements=absent.txt", "args=[--epoch=1]")
    problems = bundled.problems(*overrides, has_files=False)
    assert {each.code for each in problems} == {"requirement-unreadable", "argument-unknown"}


# The imports of a file


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (b"a = 1\nb = (", 2, "'(' was never closed"),
        (b"print 'a'", 1, "missing parentheses"),
        (b"a = 1\nreturn a", 2, "'return' outside function"),
        ("a = 'ä'".encode("latin-1"), 1, "utf-8"),
        (b"a = 1\0", 1, "null byte"),
        (b"-" * 100_000 + b"1", 1, "nested too deeply"),
        ("# coding: latin-1\na = 'ä'".encode("latin-1"), None, None),
        ("\ufeffa = 1".encode(), None, None),
        (rb"a = '\d'", None, None),
    ],
)
def test_a_file_that_python_cannot_parse(text, line, message):
    problem = read_source(text).problem
    assert (problem and problem[0]) == line
    assert problem is None or message in problem[2]


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        ("import a.b as c, d", [("a.b", True), ("d", True)]),
        ("from a import *", [("a", True)]),
        ("def f():\n  import a", [("a", False)]),
        ("if x:\n  import a\nelse:\n  import b", [("a", False), ("b", False)]),
        ("class A:\n  import a", [("a", True)]),
        ("with open(x):\n  import a", [("a", True)]),
        ("with contextlib.suppress(ImportError):\n  import a", []),
        ("try:\n  import a\nfinally:\n  import b", [("a", True), ("b", True)]),
        ("try:\n  import a\nexcept (E, ModuleNotFoundError):\n  import b", []),
        ("try:\n  import a\nexcept:\n  pass\nelse:\n  import b", [("b", True)]),
        ("if typing.TYPE_CHECKING:\n  import a\nelse:\n  import b", [("b", True)]),
        ('if __name__ == "__main__":\n  import a', [("a", True)]),
        ("match x:\n  case 1:\n    import a", [("a", False)]),
    ],
)
def test_imports_in_functions_and_branches_are_not_required(text, imports):
    actual = read_source(text.encode()).imports
    assert [(each.module, each.is_required) for each in actual] == imports
