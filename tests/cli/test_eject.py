"""`eject` copies the trainer package into a project."""

from __future__ import annotations

import sys

from distlaunch import resources


def test_outside_a_project_nothing_is_written(run, tmp_path):
    done = run("eject")
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
    (copy / "options.py").write_text("# mine\n")
    refused = run("eject", cwd=folder)
    message = "distlaunch: error: distlaunch_trainer/options.py would be overwritten"
    assert (refused.code, refused.err.startswith(message)) == (1, True)
    forced = run("eject", "--force", cwd=folder)
    kept = "kept distlaunch_trainer/options.py as distlaunch_trainer/options.py.bak\n"
    assert forced.out == f"{kept}wrote 1 file to {expected}"
    assert (copy / "options.py.bak").read_text() == "# mine\n"


def test_a_run_uses_the_copy_of_the_project(cli, run, tmp_path):
    folder = tmp_path / "digits"
    run("init", "digits")
    find = "importlib.util.find_spec('distlaunch_trainer').origin"
    program = f"import importlib.util; print({find})"
    (folder / "trainer/task.py").write_text(program)
    here = ("--", sys.executable, "-c", program)
    package = resources.trainer_package()
    assert f"{package}/" in cli("local", "--workers", "1", *here, cwd=folder).stdout
    run("eject", cwd=folder)
    for task in ((), here):
        done = cli("local", "--workers", "1", *task, cwd=folder)
        assert done.returncode == 0
        assert f"{folder}/" in done.stdout
