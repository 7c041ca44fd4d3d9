"""What `local`, `tune --local` and comparisons refuse before they start a task."""

from __future__ import annotations

import time

import pytest

from distlaunch import resources, scaffold
from distlaunch.checks.local_run import check_project
from distlaunch.checks.trainer import find_trainer
from distlaunch.cli import main
from distlaunch.errors import ProjectError
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.load import load_job

MODEL, DATA = "trainer/model.py", "trainer/data.py"
TUNING = """
tuning:
  metric: val_accuracy
  goal: maximize
  trials: 3
  algorithm: random
  parameters: {learning_rate: {min: 0.0001, max: 0.1}}
"""


def errors(project, *overrides) -> list[str]:
    with pytest.raises(ProjectError) as error:
        check_project(project.order(*overrides))
    return list(error.value.lines)


def test_a_new_project_is_accepted_whatever_its_image_needs(bundled):
    assert check_project(bundled.order()) == ((), True)
    bundled.write("helpers/sums.py", "")  # of no package, so that it is not in the image
    bundled.prepend(MODEL, "import helpers.sums\n")
    bundled.write("requirements.txt", "not a requirement\n")
    bundled.write("Dockerfile", "FROM scratch\n")
    assert check_project(bundled.order()) == ((), True)
    assert check_project(bundled.order("module=click")) == ((), False)  # installed here
    bundled.prepend(MODEL, "def later():\n    import sklearn_x\n")
    (problem,), is_trainer = check_project(bundled.order())
    assert (problem.severity, problem.code, is_trainer) == ("warning", "import-missing", True)


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        (MODEL, "import sklearn_x\n", f"{MODEL}:1: sklearn_x is not installed here; run '"),
        (MODEL, "def (\n", f"{MODEL}:1:5: syntax error: "),
        (MODEL, "def create_mode(): ...\n", f"{MODEL}: no function create_model(), which the tr"),
        (DATA, "import trainer.modle\n", f"{DATA}:1: no module trainer.modle; did you mean"),
        (DATA, "from .. import a\n", "relative import of '..' leads out of the package; import"),
    ],
)
def test_code_that_would_end_the_run_is_an_error(bundled, file, text, line):
    bundled.write(file, text)
    assert any(line in each for each in errors(bundled))


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("module=trainer.tsk", "module: no module trainer.tsk; did you mean 'trainer.task'?"),
        ("module=trainer", "trainer is a package without __main__.py"),
        ("args=[--epochs=x]", "args: --epochs: invalid whole number value: 'x'"),
    ],
)
def test_a_wrong_setting_is_an_error_at_its_option(bundled, override, line):
    assert line in errors(bundled, override)[0]


def test_a_script_that_is_missing(bundled):
    bundled.write("train.py", "import click\n")
    text = (bundled.folder / "distlaunch.yaml").read_text()
    bundled.write("distlaunch.yaml", text.replace("module: trainer.task", "script: train.py"))
    assert check_project(bundled.order()) == ((), True)
    (bundled.folder / "train.py").rename(bundled.folder / "training.py")
    line = "script: no file train.py; did you mean 'training.py'? [script-missing]"
    assert errors(bundled)[0].endswith(line)


def test_environments_are_not_read_and_modules_of_a_path_that_is_set_are_not_known(bundled):
    for folder in (".venv/lib", "venv/lib/python3.12/site-packages"):
        bundled.write(f"{folder}/sklearn_x/__init__.py", "")
    bundled.prepend(MODEL, "import sklearn_x\n")
    assert "sklearn_x is not installed here" in errors(bundled)[0]
    assert check_project(bundled.order("env.PYTHONPATH=/opt/lib")) == ((), True)


def test_options_of_a_copy_with_other_options_are_not_checked(ejected):
    order = ejected.order("args=[--my-option=1]")
    assert "no option --my-option" in errors(ejected, "args=[--my-option=1]")[0]
    options = ejected.folder / "distlaunch_trainer/options.py"
    options.write_text(f"{options.read_text()}\n# --my-option\n")
    assert find_trainer(order).changed_task == "distlaunch_trainer/options.py"
    assert check_project(order) == ((), True)
    assert ejected.summary("args=[--my-option=1]") == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["local", "--", "--epoch=3"], "arguments after --: the trainer has no option --epoch;"),
        (["compare", "1", "--", "--epoch=3"], "arguments after --: the trainer has no"),
        (["tune", "--local"], "tuning.parameters.learning_rate: the trainer has no option --lear"),
        (["local", "--set=args=[--epoch=3]"], "--set args: the trainer has no option --epoch; did"),
    ],
)
def test_a_run_is_refused_before_it_starts(bundled, monkeypatch, capsys, words, line):
    text = (bundled.folder / "distlaunch.yaml").read_text()
    bundled.write("distlaunch.yaml", text + TUNING)
    monkeypatch.chdir(bundled.folder)
    before = time.monotonic()
    assert main(words) == 1
    assert time.monotonic() - before < 5
    error = capsys.readouterr().err
    assert line in error
    assert ("learning_rate" in error) == (words[0] == "tune")  # it concerns no plain run
    assert error.endswith(
        "[argument-unknown]\ndistlaunch: more about a problem: distlaunch docs argument-unknown\n"
    )
    assert not (bundled.folder / ".distlaunch").exists()


@pytest.mark.parametrize("name", resources.starters())
def test_every_starter_is_accepted(tmp_path, name):
    scaffold.plan(tmp_path / "project", name).write(tmp_path)
    order = LaunchRequest(tmp_path, load_job(tmp_path).job)
    assert check_project(order) == ((), True)
