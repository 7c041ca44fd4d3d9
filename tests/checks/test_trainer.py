from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from distlaunch import __version__, resources
from distlaunch.checks import trainer
from distlaunch.checks.data import load_datasets
from distlaunch.checks.trainer import code_problems, find_trainer, parse_arguments
from distlaunch.job.model import Program

SPOT = "scheduling.strategy=SPOT"
# A task that uses the trainer package by its text only.
EARLY_END = "if False:\n    import distlaunch_trainer\n"


# Which program it is


def test_the_trainer_is_a_task_that_imports_the_package(bundled):
    original = find_trainer(bundled.order())
    assert original.folder == bundled.folder / "trainer"
    assert original.library == resources.trainer_package()
    assert (original.package, original.version) == ("trainer", __version__)
    assert original.options.epochs == 8
    assert not original.changed_task
    (bundled.folder / "src").mkdir()
    original.folder.rename(bundled.folder / "src" / "mine")
    moved = find_trainer(bundled.order("module=src.mine.task"))
    assert (moved.package, moved.changed_task) == ("src.mine", "")


def test_another_module_and_a_task_without_the_package_are_another_program(bundled):
    for module in ("trainer", "task", "other.task", "trainer.model"):
        assert find_trainer(bundled.order(f"module={module}")) is None
    for text in ("", "import distlaunch_trainers\n", "# import distlaunch_trainer\n"):
        bundled.write("trainer/task.py", text)
        assert find_trainer(bundled.order()) is None


def test_a_copy_in_the_project_is_used_and_one_without_a_version_is_another_program(ejected):
    assert find_trainer(ejected.order()).library == ejected.folder / "distlaunch_trainer"
    for text in ("", "__version__ = version()\n", "def (\n", "\0"):
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


# Its arguments


def test_the_last_value_of_an_option_is_used_and_none_that_is_refused():
    words = "--epochs=1 --shards 7 --shards=many --epochs 3 --odd --no-resume --sync-batch-norm"
    options, problems = parse_arguments(words.split())
    assert (options.epochs, options.shards) == (3, 7)
    assert (options.resume, options.sync_batch_norm) == (False, True)
    assert len(problems) == 2  # all at once


def refusals(bundled, override):
    order = bundled.order(override)
    return list(code_problems(find_trainer(order), order.job, order.folder))


def tuned(parameter):
    return f"tuning={{metric: loss, goal: minimize, trials: 4, parameters: {{{parameter}}}}}"


@pytest.mark.parametrize(
    "override",
    [
        "args=[]",
        "args=[--epochs=3, --batch-size, '32']",
        "args=[--resume, --no-resume, --sync-batch-norm]",
        "args=[--learning-rate, '1e-3', --precision=mixed_bfloat16, --job-dir=gs://a/b]",
        "args=[--shards=10000, '--seed=4294967295', --epochs=2147483647, --help]",
        tuned("learning-rate: {type: double, min: 0.001, max: 0.1, scale: log}"),
        # A problem of `tuning`:
        tuned("learning-rate: {type: double, min: 0, max: 0.1, scale: log}"),
        tuned("epochs: {type: integer, min: 1, max: 8}"),
        tuned("batch-size: {type: double, values: [16, 32]}"),
        tuned("batch-size: {values: ['16', '32']}"),
    ],
)
def test_arguments_and_tuned_parameters_that_the_trainer_takes(override, bundled):
    assert refusals(bundled, override) == []


@pytest.mark.parametrize(
    ("override", "what", "remedy"),
    [
        ("--epoch=3", "the trainer has no option --epoch", "did you mean '--epochs'?"),
        ("--batch_size, '32'", "no option --batch_size", "did you mean '--batch-size'?"),
        ("--momentum=3", "no option --momentum", "it has --allow-cpu, --batch-size, "),
        ("--epochs, --resume", "--epochs: expected one argument", "--help"),
        ("--sync-batch-norm=yes", "--sync-batch-norm: ignored explicit argument", "--help"),
        ("train", "unexpected positional argument 'train'", "write --NAME=train"),
        ("--shuffle=-1", "--shuffle: must be 0 or more, got -1", "--help"),
        ("--precision=half", "--precision: invalid choice: 'half'", "--help"),
        (tuned("momentum: {type: double, min: 0, max: 1}"), "no option --momentum", "it has"),
        (tuned("epochs: {type: double, min: 1, max: 8}"), "whole number value: '1.", "--help"),
        (tuned("epochs: {type: integer, min: 0, max: 8}"), "must be 1 or more, got 0", "--help"),
        (tuned("shards: {type: integer, min: 1, max: 20000}"), "10000 or less, got 20000", ""),
        (tuned("precision: {values: [float32, half]}"), "invalid choice: 'half'", "--help"),
        (tuned("learning-rate: {type: double, min: 0, max: 1}"), "a number above 0, got 0", ""),
        (tuned("sync-batch-norm: {values: ['true']}"), "ignored explicit argument 'true'", ""),
    ],
)
def test_arguments_and_tuned_parameters_that_the_trainer_refuses(override, what, remedy, bundled):
    is_tuned = override.startswith("tuning")
    [problem] = refusals(bundled, override if is_tuned else f"args=[{override}]")
    name = override.partition("parameters: {")[2].partition(":")[0]
    where = f"tuning.parameters.{name}" if is_tuned else "args"
    assert (problem.code, problem.where) == ("argument-unknown", where)
    assert what in problem.what
    assert remedy in problem.remedy


# What it cannot do, or does in another way than expected


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([SPOT, "args=[--checkpoint-every=0]"], ["spot-without-checkpoints"]),
        ([SPOT, "args=[--checkpoint-every, '100']"], []),
        ([SPOT, "args=[--checkpoint-every=9, --no-resume, --resume]"], []),
        (["args=[--no-resume]"], []),
    ],
)
def test_spot_machines_need_checkpoints(overrides, expected, bundled):
    assert [each.code for each in bundled.problems(*overrides)] == expected


@pytest.mark.parametrize(
    ("layer", "is_reported"),
    [
        ("BatchNormalization(axis=1, name='norm')", True),
        ("BatchNormalization(synchronized=False)", False),
        ("BatchNormalization(**OPTIONS)", False),
        ("BatchNormalization(trainable=False)", False),
        ("LayerNormalization()", False),
        ("__dict__; keras.applications.ResNet50(weights=None)", True),
        ("__dict__; keras.applications.VGG16(weights=None)", False),
        ("__dict__; BASE = keras.applications.ResNet50()\nBASE.trainable = False", False),
    ],
)
def test_a_batch_normalization_of_each_replica_alone(layer, is_reported, bundled):
    bundled.prepend("trainer/model.py", f"import keras\nLAYER = keras.layers.{layer}\n")
    expected = [("batch-norm-unsynchronised", "warning", "trainer/model.py:2")] * is_reported
    assert bundled.summary(bundled.cluster(1, gpus=2)) == bundled.summary() == expected
    assert bundled.problems("args=[--sync-batch-norm]") == []
    assert bundled.problems(bundled.cluster(1)) == []


@pytest.mark.parametrize(
    ("text", "is_reported"),
    [
        ("def build(): ...\n", True),
        ("from .models import create_model\n", False),
        ("from .models import build as create_model\n", False),
        ("from .models import *\n", False),
        ("create_model = build = lambda: None\n", False),
        ("if True:\n    def create_model(): ...\n", False),
        ("def create_model(:\n", False),
    ],
)
def test_the_functions_that_the_trainer_calls(text, is_reported, bundled):
    bundled.write("trainer/model.py", text)
    order = bundled.order()
    problems = code_problems(find_trainer(order), order.job, order.folder)
    summary = [(each.code, each.severity, each.where) for each in problems]
    assert summary == [("trainer-incomplete", "error", "trainer/model.py")] * is_reported


@pytest.mark.parametrize(
    ("version", "expected"), [("0.0.9", ["trainer-older"]), (__version__, []), ("0.10.0", [])]
)
def test_an_older_copy_of_the_trainer_package(version, expected, ejected):
    file = "distlaunch_trainer/__init__.py"
    text = (ejected.folder / file).read_text()
    ejected.write(file, text.replace(f'"{__version__}"', f'"{version}"'))
    problems = ejected.problems()
    assert [each.code for each in problems] == expected
    assert all("distlaunch eject --force" in each.remedy for each in problems)


@pytest.mark.parametrize("file", ["Dockerfile", "templates/Dockerfile.j2"])
def test_a_dockerfile_of_the_user_installs_the_trainer_package(file, bundled):
    base = "FROM python:3.12.12-slim-bookworm\n"
    text = f"{base}COPY requirements.txt .\nRUN pip install -r requirements.txt\n"
    bundled.write(file, text)
    assert bundled.summary() == [("trainer-not-installed", "warning", file)]
    bundled.write(file, f"{text}RUN pip install --no-index --find-links=x distlaunch_trainer\n")
    assert bundled.summary() == []
    bundled.write(file, text)
    bundled.write("distlaunch_trainer/__init__.py", f'__version__ = "{__version__}"\n')
    bundled.write("distlaunch_trainer/run.py", "")
    assert bundled.summary() == []


def test_the_versions_of_keras(bundled):
    problem = ("requirement-clash", "warning", "requirements.txt:2")
    for keras, is_reported in (
        ("==3.10.0", True),
        ("<3", True),
        (">3.14,<=3.14", True),
        ("<4", False),
        (">3.13a1,<3.13a3", False),
    ):
        bundled.write("requirements.txt", f"tensorflow==2.21.0\nkeras{keras}\n")
        assert bundled.summary() == [problem] * is_reported


def test_other_programs_are_not_held_to_these_rules(plain):
    plain.prepend("program.py", "BatchNormalization()\n")
    plain.write("requirements.txt", "keras<3\n")
    pool = "{machine: n1-standard-4, count: 2}"
    overrides = [f"cluster.workers={pool}", f"cluster.evaluators={pool}", "args=[--odd, words]"]
    assert plain.problems(SPOT, *overrides) == []


# One step


def run_one_step(project):
    order = project.order()
    return trainer.run_one_step(order, find_trainer(order))


@pytest.mark.slow
def test_one_step_is_trained_and_the_data_are_recorded(whole):
    shutil.rmtree(whole.folder / ".distlaunch")
    before = set(whole.folder.rglob("*"))
    assert run_one_step(whole) == []
    added = {path.name for path in set(whole.folder.rglob("*")) - before if path.suffix != ".pyc"}
    assert added <= {
        *(".records-index.json", "__pycache__", ".distlaunch", "check", "summary.json", "local")
    }
    data, unknown = load_datasets(whole.folder, whole.folder / "trainer/data.py")
    assert unknown == ""
    assert (data["training"].examples, len(data["training"].files)) == (1437, 5)
    assert data["validation"].examples == 360


@pytest.mark.slow
def test_a_program_that_ends_early_has_not_trained(bundled, tmp_path, monkeypatch):
    for name in ("tensorflow", "keras"):
        (tmp_path / f"{name}.py").touch()  # the real ones take seconds to import
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    bundled.write("trainer/task.py", EARLY_END)
    [problem] = run_one_step(bundled)
    reason = "one step in one process: exit code 0 before the end of training"
    assert (problem.code, problem.severity, problem.what) == ("run-failed", "error", reason)
    assert "'distlaunch local --workers 1" in problem.remedy


@pytest.mark.slow
def test_a_run_that_fails_is_reported_with_its_error(bundled):
    order = bundled.order()
    bundled.write("distlaunch.yaml", "name: no\n")
    [problem] = trainer.run_one_step(order, find_trainer(order))
    assert problem.what.startswith("one step in one process: exit code 1: distlaunch.yaml:1:1")


def test_another_program_is_not_run(plain):
    [problem] = run_one_step(plain)
    assert (problem.code, problem.severity) == ("run-skipped", "warning")
