"""`check --run` with the trainer that `init` brings, in its real process."""

from __future__ import annotations

import pytest

from distlaunch import scaffold
from distlaunch.checks import trainer
from distlaunch.checks.data import record
from distlaunch.job.load import load_job
from distlaunch.submit.plan import LaunchRequest

LEAVES = "\n\nimport os\n\n_made = create_model\n\n\ndef create_model():\n    os._exit(0)\n"


@pytest.fixture
def project(tmp_path):
    scaffold.plan(tmp_path, "digits").write(tmp_path)
    return tmp_path


def problems(project, *sets):
    order = LaunchRequest(project, load_job(project, overrides=sets).job, overrides=sets)
    return trainer.run_one_step(order, trainer.find_trainer(order))


@pytest.mark.slow
def test_one_step_is_trained_and_the_data_are_recorded(project):
    before = set(project.rglob("*"))
    assert problems(project) == []
    left = {path.name for path in set(project.rglob("*")) - before if path.suffix != ".pyc"}
    assert left <= {".records-index.json", "__pycache__", ".distlaunch", "data.json", "local"}
    data = record.load(project, project / "trainer/data.py")
    assert (data.training.examples, len(data.training.files)) == (1437, 5)
    assert data.validation.examples == 360


@pytest.mark.slow
def test_a_model_that_cannot_be_made_is_reported_with_its_line(project):
    model = project / "trainer/model.py"
    model.write_text(model.read_text().replace("layers.Flatten", "layers.Flaten"))
    [problem] = problems(project)
    assert (problem.code, problem.severity) == ("run-failed", "error")
    assert "'Flaten' (trainer/model.py, line" in problem.what
    assert "'distlaunch local --workers 1" in problem.remedy


@pytest.mark.slow
def test_a_program_that_ends_early_has_not_trained(project):
    model = project / "trainer/model.py"
    model.write_text(model.read_text() + LEAVES)
    [problem] = problems(project)
    assert (problem.code, problem.what) == (
        "run-failed",
        "one step in one process: exit code 0 before the end of training",
    )


def test_another_program_is_not_run(project):
    (project / "other.py").write_text("raise SystemExit(1)\n")
    [problem] = problems(project, "module=other")
    assert (problem.code, problem.severity) == ("run-skipped", "warning")
