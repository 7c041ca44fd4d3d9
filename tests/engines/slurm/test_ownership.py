"""Folders that several users of a cluster share: none runs or sees what another one wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distlaunch.engines.slurm.engine import SlurmEngine
from distlaunch.errors import SlurmError, SlurmRefused
from distlaunch.job.launch import LaunchRequest
from distlaunch.job.model import Cluster, Job, Machine, Pool, Slurm

OTHER = 12_345  # no user of this machine
COMMANDS = {"squeue": "", "sbatch": "echo 7", "srun": "touch started"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that all users may write, and commands of a Slurm that forgets each job at once."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, line in COMMANDS.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    folder = tmp_path / "jobs"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def give_away(monkeypatch):
    """Make a file or folder another user's; without root, all become another user's."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, OTHER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: OTHER)

    return give


def launch(folder: Path) -> LaunchRequest:
    pool = Pool(Machine(""))
    slurm = Slurm(folder=str(folder), python=sys.executable)
    job = Job("digits", Cluster(pool), module="program", engine="slurm", slurm=slurm)
    return LaunchRequest(folder.parent, job)


def submit(folder: Path, launch_id: str = "digits-1") -> Path:
    engine = SlurmEngine(folder, folder.parent)
    request = engine.request(launch(folder), launch_id, None)
    return Path(engine.create(request, may_exist=False).job.name)


def listed(folder: Path) -> list[str]:
    engine = SlurmEngine(folder, folder.parent)
    jobs = [job.id for job in engine.newest(10, all_jobs=False)]
    assert sorted(job.id for job in engine.search("digits")) == sorted(jobs)
    return jobs


def test_a_shared_folder_takes_launches_that_others_cannot_write(folder):
    before = os.umask(0)
    try:
        path = submit(folder)
    finally:
        os.umask(before)
    modes = {each: each.stat().st_mode & 0o777 for each in (path.parent, path, path / "code")}
    assert [*modes.values()] == [0o755, 0o755, 0o700]
    assert listed(folder) == ["digits-1"]


def test_the_folder_that_another_user_made_first_is_refused(folder, give_away):
    (folder / "digits").mkdir()
    give_away(folder / "digits")
    with pytest.raises(SlurmRefused, match=r"belongs to .*, not to you") as refusal:
        submit(folder)
    assert "set slurm.folder to a folder of yours" in refusal.value.remedy
    assert not [*(folder / "digits").iterdir()]


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_where_others_may_rename_is_refused(folder, mode):
    folder.chmod(mode)
    if mode == 0o775:
        if os.geteuid() != 0:
            pytest.skip("only root may give a folder to another group")
        os.chown(folder, -1, OTHER)
    with pytest.raises(SlurmRefused, match=rf"written by others \(mode {mode:o}\)") as refusal:
        submit(folder)
    assert f"chmod go-w {folder}" in refusal.value.remedy
    assert not [*folder.iterdir()]
    folder.chmod(0o755)
    submit(folder)


def test_the_owner_of_a_shared_folder_is_trusted_only_if_it_is_root(folder, give_away):
    give_away(folder)
    with pytest.raises(SlurmRefused, match="belongs to"):
        submit(folder)


@pytest.mark.parametrize("name", ["digits", "digits/digits-1"])
def test_a_symlink_in_the_place_of_a_launch_is_refused(folder, name):
    (folder.parent / "other").mkdir()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(folder.parent / "other")
    with pytest.raises(SlurmRefused, match="no folder of yours"):
        submit(folder)
    assert not [*(folder.parent / "other").glob("**/batch.sh")]


def test_a_symlink_of_another_user_on_the_way_is_refused(folder, give_away):
    link = folder / "link"
    (folder.parent / "mine").mkdir()
    link.symlink_to(folder.parent / "mine")
    submit(link)
    give_away(link)
    with pytest.raises(SlurmRefused, match="belongs to"):
        submit(link, "digits-2")


def test_symlinks_in_a_circle_are_refused(folder):
    (folder / "link").symlink_to("link")
    with pytest.raises(SlurmRefused, match="too many symlinks"):
        submit(folder / "link")


@pytest.mark.parametrize("above", ["", ".."])
def test_launches_of_other_users_are_not_shown(folder, give_away, above):
    path = submit(folder)
    assert SlurmEngine(folder, folder).get(str(path)).id == "digits-1"
    give_away(path / above)
    assert listed(folder) == []
    engine = SlurmEngine(folder, folder)
    assert engine.find("digits-1", "") is None
    with pytest.raises(SlurmError, match="no launch of yours is there"):
        engine.get(str(path))


def test_a_launch_behind_a_symlink_is_not_shown(folder):
    path = submit(folder)
    (folder / "digits" / "digits-2").symlink_to(path)
    (folder / "other").symlink_to(folder / "digits")
    assert listed(folder) == ["digits-1"]


def run_script(path: Path) -> subprocess.CompletedProcess[str]:
    """Run a batch script as Slurm does."""
    words = ["bash", str(path / "batch.sh")]
    env = os.environ | {"SLURM_JOB_ID": "7"}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)


def test_a_job_runs_in_a_folder_of_the_user(folder):
    path = submit(folder)
    done = run_script(path)
    assert done.returncode == 0, done.stderr
    assert (path / "code" / "started").exists()
    assert json.loads((path / "end.json").read_text())["code"] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
@pytest.mark.parametrize("part", ["..", ".", "code"])
def test_a_job_runs_nothing_in_a_folder_of_another_user(folder, part):
    path = submit(folder)
    os.chown(path / part, OTHER, -1)
    done = run_script(path)
    assert done.returncode == 1
    assert "no folder of root, so nothing in it is run" in done.stderr
    assert not (path / "code" / "started").exists()


@pytest.mark.parametrize("part", [".", "code"])
def test_a_job_runs_nothing_behind_a_symlink(folder, part):
    path = submit(folder)
    script = (path / "batch.sh").read_text()
    target = path / part
    target.rename(folder / "moved")
    target.symlink_to(folder / "moved")
    (folder / "batch.sh").write_text(script)
    assert run_script(folder).returncode == 1
    assert not [*folder.glob("**/started")]


def test_the_folder_of_each_user_may_be_behind_a_symlink_of_that_user(folder):
    (folder / "mine").mkdir()
    home = folder.parent / "home"
    home.mkdir()
    (home / "jobs").symlink_to(folder / "mine")
    assert submit(home / "jobs") == home / "jobs" / "digits" / "digits-1"
    assert run_script(folder / "mine" / "digits" / "digits-1").returncode == 0
    assert listed(home / "jobs") == ["digits-1"]


def test_check_reports_what_a_submit_refuses(folder, cli):
    folder.chmod(0o777)
    project = folder.parent / "project"
    project.mkdir()
    slurm = f"slurm: {{folder: {folder}, python: {sys.executable}}}"
    lines = ["name: digits", "engine: slurm", "module: program", slurm, "cluster: {chief: {}}"]
    (project / "distlaunch.yaml").write_text("\n".join(lines))
    (project / "program.py").touch()
    done = cli("check", "--offline", "--json", cwd=project)
    problems = {each["code"]: each["what"] for each in json.loads(done.stdout)["problems"]}
    assert problems["slurm-folder"] == f"{folder} can be written by others (mode 777)"
