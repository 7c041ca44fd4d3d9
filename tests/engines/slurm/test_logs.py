"""Long logs of a job on Slurm."""

from __future__ import annotations

import re
import tracemalloc

import pytest

from distlaunch.engines.api import LogSelection
from distlaunch.engines.slurm.launch_folder import LaunchFolder
from distlaunch.engines.slurm.logs import TaskLogReader

COUNT = 120_000


@pytest.fixture
def folder(tmp_path):
    attempt = tmp_path / "task-logs/attempt-1"
    attempt.mkdir(parents=True)
    with (attempt / "chief.log").open("w") as file:
        for number in range(COUNT):
            file.write(f"step {number} of a line that is as long as those of logs are\n")
    return LaunchFolder(tmp_path)


@pytest.mark.parametrize(
    ("selection", "numbers"),
    [
        (LogSelection(), range(COUNT)),
        (LogSelection(last=3), range(COUNT - 3, COUNT)),
        (LogSelection(last=2, pattern=re.compile("step [0-9]0 ")), (80, 90)),
        (LogSelection(last=0), ()),
    ],
)
def test_a_long_log_is_read_in_blocks(folder, selection, numbers):
    tracemalloc.start()
    count, digest, expected = 0, 0, 0
    for event in TaskLogReader(folder, ["chief"], selection).read():
        for line in event.text.splitlines():
            count, digest = count + 1, hash((digest, int(line.split()[1])))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    for number in numbers:
        expected = hash((expected, number))
    assert (count, digest) == (len(numbers), expected)
    assert peak < 8_000_000  # the log has 7 MB, and as lines of text 15
