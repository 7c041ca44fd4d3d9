"""`upgrade` of a real project of an earlier distlaunch, and `eject`."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import pytest

from distlaunch import resources, upgrade
from distlaunch.checks.trainer import find_trainer
from distlaunch.job.load import load_job
from distlaunch.submit.plan import LaunchRequest

EARLIER = Path(__file__).with_name("earlier_project.tar.xz")
"""`trainer/` and `tests/` of `init` when it copied the trainer to ``trainer/distributed``."""
RECORDS = "from trainer.distributed.input import Records\n"
PAGE = (resources.skeleton() / "base/trainer/task.py").read_text(encoding="utf-8")


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def project(tmp_path) -> Path:
    folder = tmp_path / "digits"
    with tarfile.open(EARLIER) as archive:
        archive.extractall(folder, filter="data")
    chief = "{chief: {machine: n1-standard-4}}"
    (folder / "distlaunch.yaml").write_text(
        f"name: digits\nmodule: trainer.task\ncluster: {chief}\n"
    )
    return folder


def test_an_earlier_project_gets_the_page_of_a_new_one(run, project):
    before = tree(project)
    done = run("upgrade", cwd=project)
    assert (done.code, done.err) == (0, "")
    after = tree(project)
    assert after["trainer/task.py"].decode() == PAGE
    assert not (project / "trainer/distributed").exists()
    for name in ("trainer/data.py", "tests/test_model.py"):
        old, new = before[name].decode(), after[name].decode()
        assert new == old.replace("trainer.distributed.input", "distlaunch_trainer") != old
        assert after[f"{name}.bak"] == before[name]
        assert f"--- a/{name}\n+++ b/{name}\n" in done.out
        assert f"kept {name} as {name}.bak\n" in done.out
    assert after["trainer/task.py.bak"] == before["trainer/task.py"]
    assert after["trainer/model.py"] == before["trainer/model.py"]
    assert "\n-from trainer.distributed.input import Records\n+from distlaunch_trainer" in done.out
    assert "\nremove trainer/distributed/ (27 files, as 'distlaunch init' wrote them)" in done.out
    assert done.out.index("+++ b/") < done.out.index("kept ")
    trainer = find_trainer(LaunchRequest(project, load_job(project).job))
    assert (trainer.library, trainer.changed_task) == (resources.trainer_package(), "")
    done = run("upgrade", cwd=project)
    assert done == (0, "nothing to upgrade: the project has no copied trainer\n", "")
    assert tree(project) == after


def test_a_dry_run_shows_the_same_and_writes_nothing(run, project):
    before = tree(project)
    shown = run("upgrade", "--dry-run", cwd=project)
    assert shown.code == 0
    diff = shown.out.removesuffix("nothing was written\n")
    assert tree(project) == before
    assert run("upgrade", cwd=project).out.startswith(diff)


@pytest.mark.parametrize("name", ["task.py", "distributed/loop.py", "distributed/mine.py"])
def test_a_project_with_a_changed_trainer_is_left_alone(run, project, name):
    file = project / "trainer" / name
    file.write_text(file.read_text() + "\n# mine\n" if file.exists() else "# mine\n")
    before = tree(project)
    done = run("upgrade", cwd=project)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    start = f"distlaunch: error: trainer/{name}: was changed since 'distlaunch init' wrote it"
    assert done.err.startswith(start)
    assert tree(project) == before


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (RECORDS, "from distlaunch_trainer import Records\n"),
        ("from .distributed.input import Arrays\n", "from distlaunch_trainer import Arrays\n"),
        ("def f():\n    " + RECORDS, "def f():\n    from distlaunch_trainer import Records\n"),
        (
            RECORDS.replace("Records", "(\n    Records as R,\n)"),
            "from distlaunch_trainer import (\n",
        ),
        ("from trainer.distributed.plan import Plan\n", None),
        ("from trainer.distributed.input import Input\n", None),
        ("import trainer.distributed.input as i\n", None),
        ("from . import distributed\n", None),
        ("from torch.distributed import barrier\n", "from torch.distributed import barrier\n"),
    ],
)
def test_imports_of_the_users_modules(run, project, line, expected):
    (project / "trainer/mine.py").write_text(line)
    (project / ".venv/lib").mkdir(parents=True)
    (project / ".venv/lib/other.py").write_text("from trainer.distributed.plan import Plan\n")
    done = run("upgrade", cwd=project)
    if expected is None:
        assert (done.code, done.out) == (1, "")
        number = 1 + line.startswith("def")
        assert done.err.startswith(f"distlaunch: error: trainer/mine.py:{number}: imports what ")
        assert (project / "trainer/distributed").exists()
    else:
        assert done.code == 0
        assert (project / "trainer/mine.py").read_text().startswith(expected)


def test_another_package_and_the_line_ends_of_windows(run, project):
    (project / "src").mkdir()
    (project / "trainer").rename(project / "src/trainer")
    job = project / "distlaunch.yaml"
    job.write_text(job.read_text().replace("trainer.task", "src.trainer.task"))
    for file in (project / "src/trainer").rglob("*.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    (project / "src/trainer/data.py").write_text("from .distributed.input import Records\n")
    (project / "tests/test_model.py").write_text(
        "from src.trainer.distributed.input import Arrays\n"
    )
    assert run("upgrade", cwd=project).code == 0
    assert (project / "src/trainer/task.py").read_text() == PAGE
    assert not (project / "src/trainer/distributed").exists()
    assert (
        project / "tests/test_model.py"
    ).read_text() == "from distlaunch_trainer import Arrays\n"


def test_an_earlier_page_is_replaced_and_the_users_own_program_is_not(run, project, monkeypatch):
    run("upgrade", cwd=project)
    (project / "trainer/task.py").write_text("# an earlier page\n")
    before = tree(project)
    assert run("upgrade", cwd=project).out.startswith("nothing to upgrade")
    assert tree(project) == before
    history = json.loads(upgrade.HISTORY.read_text())
    history["task.py"].append(upgrade._hash(project / "trainer/task.py"))
    monkeypatch.setattr(upgrade, "HISTORY", project / "history.json")
    upgrade.HISTORY.write_text(json.dumps(history))
    assert "-# an earlier page\n" in run("upgrade", cwd=project).out
    assert (project / "trainer/task.py").read_text() == PAGE


def test_an_interrupted_upgrade_is_completed(run, project, monkeypatch):
    def fail(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", fail)
        done = run("upgrade", cwd=project)
    assert done.code == 1
    assert done.err.endswith(
        "trainer/distributed: permission denied; fix it, and run upgrade again\n"
    )
    assert run("upgrade", cwd=project).code == 0
    assert not (project / "trainer/distributed").exists()


def test_outside_a_project_nothing_is_written(run, tmp_path):
    for command in ("upgrade", "eject"):
        done = run(command)
        assert (done.code, done.out) == (1, "")
        assert "distlaunch.yaml" in done.err
    assert list(tmp_path.iterdir()) == []


def test_eject_copies_the_package_and_keeps_changes(run, tmp_path):
    folder = tmp_path / "digits"
    run("init", "digits")
    done = run("eject", cwd=folder)
    package = resources.trainer_package()
    files = {path.relative_to(package) for path in package.rglob("*.py")}
    copy = folder / "distlaunch_trainer"
    assert {path.relative_to(copy) for path in copy.rglob("*") if path.is_file()} == files
    expected = "distlaunch_trainer/: runs and images now use this copy\n"
    assert done == (0, f"wrote {len(files)} files to {expected}", "")
    assert run("eject", cwd=folder).out == f"wrote 0 files to {expected}"
    (copy / "plan.py").write_text("# mine\n")
    refused = run("eject", cwd=folder)
    message = "distlaunch: error: distlaunch_trainer/plan.py would be overwritten"
    assert (refused.code, refused.err.startswith(message)) == (1, True)
    forced = run("eject", "--force", cwd=folder)
    kept = "kept distlaunch_trainer/plan.py as distlaunch_trainer/plan.py.bak\n"
    assert forced.out == f"{kept}wrote 1 file to {expected}"
    assert (copy / "plan.py.bak").read_text() == "# mine\n"


def test_a_run_uses_the_copy_of_the_project(cli, run, tmp_path):
    folder = tmp_path / "digits"
    run("init", "digits")
    find = "importlib.util.find_spec('distlaunch_trainer').origin"
    program = f"import importlib.util; print({find})"
    (folder / "trainer/task.py").write_text(program)
    for words, expected in (((), resources.trainer_package()), (("eject",), folder)):
        if words:
            run(*words, cwd=folder)
        for task in ((), ("--", sys.executable, "-c", program)):
            done = cli("local", "--workers", "1", *task, cwd=folder)
            assert done.returncode == 0
            assert f"{expected}/" in done.stdout
