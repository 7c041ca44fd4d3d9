"""The working folders of the tasks of a script."""

from __future__ import annotations

import pytest

from distlaunch.errors import DistlaunchError
from distlaunch.job.model import Cluster, Job, Machine, Pool
from distlaunch.local.run_plan import RunOptions, plan_run
from distlaunch.local.task_folders import collect_files, task_folders

CLUSTER = Cluster(Pool(Machine("any")))
SCRIPT = Job("fit", CLUSTER, "distlaunch_trainer.fit", ("train.py",))
MODULE = Job("fit", CLUSTER, "trainer.task", ())


def folders(project, job=SCRIPT, workers=3, **options):
    """Return the folders of a job's tasks by their names."""
    spec = plan_run(project, job, RunOptions(workers=workers, job_dir="runs/one", **options))
    return {str(task): path for task, path in task_folders(spec, spec.cluster.tasks()).items()}


@pytest.fixture
def project(tmp_path):
    for name in ("train.py", "lib/model.py", ".git/config", "env/pyvenv.cfg", "old/run.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/large.bin").write_bytes(bytes(1 << 20))
    for name in ("cats", "dogs"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(501):
            (tmp_path / "images" / name / str(number)).touch()
    (tmp_path / "broken").symlink_to("nowhere")
    return tmp_path


def test_the_chief_has_the_project_and_workers_have_views_of_it(project):
    by_task = folders(project)
    assert by_task["chief"] == project
    view = by_task["worker:1"]
    assert view == project / "runs/one/task-folders/worker-1"
    names = sorted(path.name for path in view.iterdir())
    assert names == ["broken", "data", "images", "lib", "runs", "train.py"]
    assert not any((view / "runs").iterdir())
    (view / "lib/model.py").write_text("changed")
    (view / "lib/new").touch()
    assert (project / "lib/model.py").read_text() == "lib/model.py"
    assert not (project / "lib/new").exists()
    assert (view / "data/large.bin").readlink() == project / "data/large.bin"
    assert (view / "images").readlink() == project / "images"


def test_files_of_names_that_the_project_does_not_have_are_copied_into_it(project):
    view = folders(project)["worker:0"]
    (view / "lib/rank-1.csv").write_text("mine")
    (view / "train.py").write_text("changed")
    collect_files([view], project)
    assert (project / "lib/rank-1.csv").read_text() == "mine"
    assert (project / "train.py").read_text() == "train.py"


def test_a_restart_begins_with_a_new_view(project):
    view = folders(project)["worker:0"]
    (view / "written").touch()
    assert folders(project)["worker:0"] == view
    assert not (view / "written").exists()


def test_a_view_is_not_made_through_a_symlink(project):
    (project / "elsewhere/worker-0").mkdir(parents=True)
    (project / "runs/one").mkdir(parents=True)
    (project / "runs/one/task-folders").symlink_to(project / "elsewhere")
    with pytest.raises(DistlaunchError, match=r"task-folders is a symlink"):
        folders(project)
    assert (project / "elsewhere/worker-0").is_dir()


@pytest.mark.parametrize(("job", "options"), [(MODULE, {}), (SCRIPT, {"shares_folder": True})])
def test_others_share_the_folder_of_the_project(project, job, options):
    assert set(folders(project, job, **options).values()) == {project}


def test_a_view_that_cannot_be_made_names_the_option(project, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copy2", fail)
    with pytest.raises(DistlaunchError, match=r"worker-0: cannot be made .* --shared-folder runs"):
        folders(project)
