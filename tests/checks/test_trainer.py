from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch import scaffold
from distlaunch.checks import trainer
from distlaunch.checks.data import record
from distlaunch.checks.trainer import find_trainer, parse_options
from distlaunch.job.load import load_job, load_job_file
from distlaunch.job.model import Program
from distlaunch.submit.plan import LaunchRequest

sys.path.insert(0, str(Path(__file__).parents[2] / "trainer_skeleton" / "base"))
from trainer.task import parser

sys.path.pop(0)

LEAVES = "\n\nimport os\n\n_made = create_model\n\n\ndef create_model():\n    os._exit(0)\n"
NUMBERS = st.sampled_from(["--epochs", "--shards", "--steps-per-epoch", "--seed"])
FLAGS = ("--resume", "--no-resume", "--sync-batch-norm", "--allow-cpu", "--debug")


@pytest.fixture
def request_(pristine, tmp_path):
    folder = Path(shutil.copytree(pristine, tmp_path / "digits"))
    return LaunchRequest(folder, load_job_file(folder / "distlaunch.yaml"))


def find(request_, module="trainer.task", program=None):
    cluster = request_.job.cluster
    cluster = replace(cluster, chief=replace(cluster.chief, program=program))
    return find_trainer(
        replace(request_, job=replace(request_.job, module=module, cluster=cluster))
    )


def test_the_trainer_has_a_library_beside_its_module(request_):
    bundled = find(request_)
    assert bundled.folder == request_.folder / "trainer"
    assert (bundled.package, bundled.version) == ("trainer", "0.1.0")
    assert bundled.options == {"--epochs": "8"}
    assert bundled.data.is_file()
    assert bundled.model.is_file()
    (request_.folder / "src").mkdir()
    bundled.folder.rename(request_.folder / "src" / "mine")
    assert find(request_, "src.mine.task").package == "src.mine"


@pytest.mark.parametrize("module", ["trainer", "task", "other.task", "trainer.distributed.run"])
def test_another_module_is_another_program(request_, module):
    assert find(request_, module) is None


@pytest.mark.parametrize("text", ["", "__version__ = version()\n", "def (\n", "\0", None])
def test_a_folder_without_a_version_is_no_trainer_library(request_, text):
    file = request_.folder / "trainer" / "distributed" / "__init__.py"
    file.unlink() if text is None else file.write_text(text)
    assert find(request_) is None


def test_the_chief_may_have_its_own_program(request_):
    bundled = find(request_, program=Program(args=("--epochs=3", "--batch-size", "9")))
    assert bundled.options == {"--epochs": "3", "--batch-size": "9"}
    for program in (Program(image="a/b"), Program(command=("sh",)), Program(module="trainer.task")):
        assert find(request_, program=program) is None


@given(
    st.lists(
        st.builds("{}={}".format, NUMBERS, st.integers(1, 99))
        | st.builds("{} {}".format, NUMBERS, st.integers(1, 99))
        | st.sampled_from(FLAGS)
    )
)
def test_options_are_parsed_as_the_trainer_does(arguments):
    words = [part for argument in arguments for part in argument.split()]
    parsed = vars(parser().parse_args(words))
    for name, value in parse_options(words).items():
        expected = parsed[name[2:].replace("-", "_")]
        assert value is expected or value == str(expected)
    names = {argument.split("=")[0].split()[0].replace("--no-", "--") for argument in arguments}
    assert names == set(parse_options(words))


@pytest.fixture
def project(tmp_path):
    scaffold.plan(tmp_path, "digits").write(tmp_path)
    return tmp_path


def run_one_step(project, *sets):
    order = LaunchRequest(project, load_job(project, overrides=sets).job, overrides=sets)
    return trainer.run_one_step(order, find_trainer(order))


@pytest.mark.slow
def test_one_step_is_trained_and_the_data_are_recorded(project):
    before = set(project.rglob("*"))
    assert run_one_step(project) == []
    left = {path.name for path in set(project.rglob("*")) - before if path.suffix != ".pyc"}
    assert left <= {".records-index.json", "__pycache__", ".distlaunch", "data.json", "local"}
    data = record.load(project, project / "trainer/data.py")
    assert (data.training.examples, len(data.training.files)) == (1437, 5)
    assert data.validation.examples == 360


@pytest.mark.slow
def test_a_model_that_cannot_be_made_is_reported_with_its_line(project):
    model = project / "trainer/model.py"
    model.write_text(model.read_text().replace("layers.Flatten", "layers.Flaten"))
    [problem] = run_one_step(project)
    assert (problem.code, problem.severity) == ("run-failed", "error")
    assert "'Flaten' (trainer/model.py, line" in problem.what
    assert "'distlaunch local --workers 1" in problem.remedy


@pytest.mark.slow
def test_a_program_that_ends_early_has_not_trained(project):
    model = project / "trainer/model.py"
    model.write_text(model.read_text() + LEAVES)
    [problem] = run_one_step(project)
    assert (problem.code, problem.what) == (
        "run-failed",
        "one step in one process: exit code 0 before the end of training",
    )


def test_another_program_is_not_run(project):
    (project / "other.py").write_text("raise SystemExit(1)\n")
    [problem] = run_one_step(project, "module=other")
    assert (problem.code, problem.severity) == ("run-skipped", "warning")
