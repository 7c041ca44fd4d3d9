"""The folder of a launch on Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distlaunch.engines.slurm.launch_folder import LaunchFolder
from distlaunch.errors import DistlaunchError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_that_cannot_be_written_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("no folder")
    launch = LaunchFolder(tmp_path / "jobs" / "digits" / "digits-1")
    with (
        pytest.raises(DistlaunchError, match=r"jobs.*: cannot be written") as caught,
        launch.lock(),
    ):
        pass
    assert "slurm.folder" in caught.value.remedy


def test_a_problem_of_the_work_under_the_lock_is_not_told_as_one_of_the_folder(
    tmp_path: Path,
) -> None:
    launch = LaunchFolder(tmp_path / "digits" / "digits-1")
    with pytest.raises(FileNotFoundError, match="sbatch"), launch.lock():
        raise FileNotFoundError(2, "No such file", "sbatch")
