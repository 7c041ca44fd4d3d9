from __future__ import annotations

import sys
from functools import cache

import pytest

from distlaunch.checks.project.import_graph import reach
from distlaunch.checks.project.modules import Modules
from distlaunch.checks.project.source import read

BROKEN = "def create_model(:\n    pass\n"
TRAINING = "def training():\n    return []\n"
FOR_NEWER = "try:\n    pass\nexcept* ValueError:\n    pass\n"  # Python 3.11 and later


def told(made, code, *sets):
    return [each for each in made.problems(*sets) if each.code == code]


def test_a_new_project_has_no_problems(whole):
    assert whole.problems() == []


def test_what_most_tests_leave_out_of_it_changes_nothing(whole, made):
    for project in (whole, made):
        project.begin("trainer/model.py", "import wandb\nfrom trainer.distributed import odd\n")
    assert made.problems() == whole.problems() != []


def test_a_project_of_one_file_has_none_either(plain):
    assert plain.problems() == []


@pytest.mark.parametrize("path", ["trainer/model.py", "trainer/distributed/cluster.py"])
def test_a_file_of_the_program_that_does_not_parse_is_refused(path, made):
    made.write(path, "\n" + BROKEN)
    [problem] = made.problems()
    assert (problem.code, problem.severity, problem.where) == (
        "source-syntax",
        "error",
        f"{path}:2",
    )
    assert f"python -m py_compile {path}" in problem.remedy


@pytest.mark.parametrize("name", ["model", "data"])
def test_what_the_trainer_needs_of_the_users_own_is_missed(name, made):
    (made.folder / f"trainer/{name}.py").unlink()
    [problem] = told(made, "import-missing")
    assert (problem.severity, problem.what) == ("error", f"trainer has no {name!r}")


@pytest.mark.parametrize("path", ["data/convert.py", "trainer/unused.py"])
def test_a_file_that_nothing_imports_and_that_does_not_parse_is_pointed_out(path, made):
    made.write(path, "print 'old'\n")
    [problem] = made.problems()
    assert (problem.code, problem.severity) == ("source-syntax", "warning")
    module = path.removesuffix(".py").replace("/", ".")
    made.begin("trainer/data.py", f"import {module}\n")
    assert ("source-syntax", "error") in made.codes()


def test_a_file_that_only_the_images_python_may_read_is_no_error(made):
    newer = f"image.base=python:3.{sys.version_info.minor + 1}-slim"
    made.write("trainer/model.py", "def (:\n")
    assert [each.severity for each in told(made, "source-syntax", newer)] == ["error"]
    made.write("trainer/model.py", "def f[T](:\n")
    [problem] = told(made, "source-syntax", newer)
    assert problem.severity == "warning"
    assert f"Python 3.{sys.version_info.minor + 1}" in problem.remedy


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python is too old for it itself")
def test_a_file_that_the_images_python_cannot_read_is_refused(made):
    made.begin("trainer/model.py", FOR_NEWER)
    assert told(made, "source-syntax") == []
    [problem] = told(made, "source-syntax", "image.base=python:3.10-slim")
    assert problem.severity == "error"


@pytest.mark.parametrize(
    ("module", "code", "remedy"),
    [
        ("trainer.tsk", "module-missing", "trainer.task"),
        ("trainer.qqqqqqqqqqqqqqqq", "module-missing", "python -m"),
        ("trainer", "module-missing", "name a module of it, as trainer.task"),
        ("trainer.tasks.py", "module-missing", "'trainer.task'"),
    ],
)
def test_a_module_that_is_not_there_is_told_with_one_that_is(module, code, remedy, made):
    [problem] = told(made, code, f"module={module}")
    assert problem.severity == "error"
    assert problem.where == "module"
    assert remedy in problem.remedy


def test_a_package_is_run_by_its_main(whole):
    whole.write("trainer/__main__.py", "import trainer.task\n")
    assert whole.problems("module=trainer") == []


def test_a_module_that_the_users_own_ignore_file_leaves_out_is_told(made):
    made.write(".dockerignore", "trainer/task.py\n")
    [problem] = told(made, "module-not-in-image")
    assert problem.where == "module"
    assert problem.remedy == "let trainer/task.py in in .dockerignore"


def test_a_program_in_a_folder_of_pythonpath_is_found(plain):
    plain.write("src/deep/program.py", "from deep.other import a\n")
    plain.write("src/deep/other.py", "a = 1\n")
    words = ("module=deep.program", "image.include=[src]", "env.PYTHONPATH=/app/src")
    (plain.folder / "deep").mkdir()  # of no use but that the image can be made
    assert plain.problems(*words) == []
    plain.write("src/deep/other.py", "b = 1\n")
    assert plain.codes(*words) == [("import-missing", "error")]


def test_with_a_dockerfile_of_ones_own_only_what_surely_matters_is_told(made):
    made.write("Dockerfile", "FROM company/base\nCOPY . /srv\nENTRYPOINT train\n")
    made.begin("trainer/model.py", "import company_library\n")
    made.write("requirements.txt", "company-things\n")
    silent = "image={repository: us-docker.pkg.dev/a/b/c}"
    assert made.problems("module=other.program", silent) == []
    made.write("trainer/model.py", BROKEN)
    assert made.codes(silent) == [("source-syntax", "error")]


def test_what_can_be_told_without_knowing_the_images_files_is_told(made):
    from distlaunch.checks import project, trainer
    from distlaunch.checks.request_view import job_request

    order = made.order("image.requirements=absent.txt", "args=[--epoch=1]")
    found = project.problems(order, job_request(order), None, trainer.find(order))
    assert {each.code for each in found} == {"requirement-unreadable", "argument-unknown"}


def test_all_that_distlaunch_itself_imports_of_its_own_is_found(checkout):
    files = [str(path.relative_to(checkout)) for path in checkout.glob("distlaunch/**/*.py")]
    modules = Modules(files)
    read_once = cache(lambda file: read((checkout / file).read_bytes()))
    found = reach(modules, read_once, map(modules.name_of, sorted(files)))
    assert found.files.keys() == set(files)
    assert {each.kind for each in found.wanted} == {"foreign"}
