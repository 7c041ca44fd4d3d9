"""Paths below ``.distlaunch``, the launcher's folder in a project, and those in a job folder."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(".distlaunch")
CHECKED = FOLDER / "check/summary.json"  # of the last `check --run`
JOBS = FOLDER / "jobs"  # records of launches
LOCAL_JOBS = FOLDER / "local"  # job folders of local runs
SEARCHES = FOLDER / "tune"  # of `distlaunch tune --local`
COMPARISONS = FOLDER / "compare"  # of `distlaunch compare`
WHEELS = FOLDER / "wheels"  # the trainer package, for builds of an image

MODEL, CHECKPOINTS, LOGS = "model", "checkpoints", "logs"
"""The folders of a job that its program writes."""
