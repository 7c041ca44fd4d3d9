"""Runs as data."""

from __future__ import annotations

import json
import os

from distlaunch.runs.view import local_runs


def test_the_newest_runs_are_those_that_started_last(tmp_path):
    def write(name, day, written):
        path = tmp_path / ".distlaunch/local" / name / "run.json"
        path.parent.mkdir(parents=True)
        times = {"started": f"2026-11-{day:02}T10:00:00Z", "ended": "2026-11-27T19:02:35Z"}
        path.write_text(json.dumps({"id": name, "state": "SUCCEEDED", **times}))
        os.utime(path, (0, 1_795_860_000 + written))  # after 2026-11-28T10:00:00Z

    for day in range(1, 20):
        write(f"run-{day}", day, 60 - (28 - day) * 86_400 if day % 2 else day)
    write("long", 5, 100)
    names = [view.id for view in local_runs(tmp_path)]
    assert names[:3] == ["run-19", "run-18", "run-17"]
    assert len(names) == 20
    for limit in (1, 3, 30):
        assert [view.id for view in local_runs(tmp_path, limit)] == names[:limit]
