"""Faults of a task: kills, freezes and stop signals at given events of the run.

The environment variable FAULTS is a JSON list of faults, each with a number, a task, an event, a
step and a signal. A program that imports this sends itself the signal at its first event of that
step or a later one, once in a job. The event ``write`` is a checkpoint that is half written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from distlaunch_trainer.cluster.role import role_from
from distlaunch_trainer.report.report import Report
from distlaunch_trainer.saving import checkpoints

ROLE = role_from(os.environ)
FAULTS = json.loads(os.environ.get("FAULTS", "[]"))


def signal_at(event, step):
    for fault in FAULTS:
        marker = Path(os.environ["MARKERS"], str(fault["number"]))
        is_due = (fault["task"], fault["event"]) == (ROLE.name, event) and step >= fault["step"]
        if is_due and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), fault["signal"])


def report_event(report, name, **facts):
    event(report, name, **facts)
    signal_at(name, facts.get("step", -1))


def write_values(path, values):
    write(path, dict(list(values.items())[: len(values) // 2]))
    signal_at("write", int(path.rpartition("step-")[2].partition("-")[0]))
    return write(path, values)


event, Report.event = Report.event, report_event
write, checkpoints._write_values = checkpoints._write_values, write_values
