from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

import distlaunch
from distlaunch import resources
from distlaunch.checks import trainer
from distlaunch.checks.data import load_datasets
from distlaunch.checks.trainer import find_trainer, parse_arguments
from distlaunch.job.model import Program

LEAVES = "\n\nimport os\n\n_create = create_model\n\n\ndef create_model():\n    os._exit(0)\n"


def test_the_trainer_is_a_task_that_imports_the_package(bundled):
    original = find_trainer(bundled.order())
    assert original.folder == bundled.folder / "trainer"
    assert original.library == resources.trainer_package()
    assert (original.package, original.version) == ("trainer", distlaunch.__version__)
    assert original.options.epochs == 8
    assert not original.changed_task
    (bundled.folder / "src").mkdir()
    original.folder.rename(bundled.folder / "src" / "mine")
    moved = find_trainer(bundled.order("module=src.mine.task"))
    assert (moved.package, moved.changed_task) == ("src.mine", "")


@pytest.mark.parametrize(
    "text", ["", "import distlaunch_trainers\n", "# import distlaunch_trainer\n"]
)
def test_a_task_without_the_package_is_another_program(bundled, text):
    bundled.write("trainer/task.py", text)
    assert find_trainer(bundled.order()) is None


@pytest.mark.parametrize("module", ["trainer", "task", "other.task", "trainer.model"])
def test_another_module_is_another_program(bundled, module):
    assert find_trainer(bundled.order(f"module={module}")) is None


def test_a_copy_in_the_project_is_used_before_the_installed_package(ejected):
    assert find_trainer(ejected.order()).library == ejected.folder / "distlaunch_trainer"


@pytest.mark.parametrize("text", ["", "__version__ = version()\n", "def (\n", "\0"])
def test_a_copy_without_a_version_is_another_program(ejected, text):
    ejected.write("distlaunch_trainer/__init__.py", text)
    assert find_trainer(ejected.order()) is None
    (ejected.folder / "distlaunch_trainer/__init__.py").unlink()
    assert find_trainer(ejected.order()) is None


def test_the_chief_may_have_its_own_program(bundled):
    def find(program):
        order = bundled.order()
        chief = replace(order.job.cluster.chief, program=program)
        cluster = replace(order.job.cluster, chief=chief)
        return find_trainer(replace(order, job=replace(order.job, cluster=cluster)))

    assert find(Program(args=("--epochs=3", "--batch-size", "9"))).options.batch_size == 9
    for program in (Program(image="a/b"), Program(command=("sh",)), Program(module="trainer.task")):
        assert find(program) is None


def test_the_last_value_of_an_option_is_used_and_none_that_is_refused():
    words = "--epochs=1 --shards 7 --shards=many --epochs 3 --odd --no-resume --sync-batch-norm"
    options, problems = parse_arguments(words.split())
    assert (options.epochs, options.shards) == (3, 7)
    assert (options.resume, options.sync_batch_norm) == (False, True)
    assert len(problems) == 2


def run_one_step(project, *overrides):
    order = project.order(*overrides)
    return trainer.run_one_step(order, find_trainer(order))


@pytest.mark.slow
def test_one_step_is_trained_and_the_data_are_recorded(whole):
    shutil.rmtree(whole.folder / ".distlaunch")
    before = set(whole.folder.rglob("*"))
    assert run_one_step(whole) == []
    added = {path.name for path in set(whole.folder.rglob("*")) - before if path.suffix != ".pyc"}
    assert added <= {
        ".records-index.json",
        "__pycache__",
        ".distlaunch",
        "check",
        "summary.json",
        "local",
    }
    data, unknown = load_datasets(whole.folder, whole.folder / "trainer/data.py")
    assert unknown == ""
    assert (data["training"].examples, len(data["training"].files)) == (1437, 5)
    assert data["validation"].examples == 360


@pytest.mark.slow
def test_a_program_that_ends_early_has_not_trained(whole):
    model = whole.folder / "trainer/model.py"
    model.write_text(model.read_text() + LEAVES)
    [problem] = run_one_step(whole)
    reason = "one step in one process: exit code 0 before the end of training"
    assert (problem.code, problem.severity, problem.what) == ("run-failed", "error", reason)
    assert "'distlaunch local --workers 1" in problem.remedy


def test_a_run_that_fails_is_reported_with_its_error(bundled):
    order = bundled.order()
    bundled.write("distlaunch.yaml", "name: no\n")
    [problem] = trainer.run_one_step(order, find_trainer(order))
    assert problem.what.startswith("one step in one process: exit code 1: distlaunch.yaml:1:1")


def test_another_program_is_not_run(plain):
    [problem] = run_one_step(plain)
    assert (problem.code, problem.severity) == ("run-skipped", "warning")
