"""trainer.task with faults: kills, freezes and stop signals at given events of the run.

The environment variable FAULTS is a JSON list of faults, each with a number, a task, an event, a
step and a signal. The task sends itself the signal at its first event of that step or a later one,
once in a job. The event ``write`` is a checkpoint that is half written.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from distlaunch_trainer import checkpoints, report
from distlaunch_trainer.cluster import role_from
from trainer import task

ROLE = role_from(os.environ)
FAULTS = [fault for fault in json.loads(os.environ["FAULTS"]) if fault["task"] == ROLE.name]


def signal_at(event, step):
    for fault in FAULTS:
        marker = Path(os.environ["MARKERS"], str(fault["number"]))
        if fault["event"] == event and step >= fault["step"] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), fault["signal"])


class Report(report.Report):
    def event(self, name, **facts):
        super().event(name, **facts)
        signal_at(name, facts.get("step", -1))


def write_values(path, values):
    write(path, dict(list(values.items())[: len(values) // 2]))
    signal_at("write", int(path.rpartition("step-")[2].partition("-")[0]))
    write(path, values)


write, checkpoints._write_values = checkpoints._write_values, write_values

if __name__ == "__main__":
    from distlaunch_trainer import run_start

    run_start.Report = Report
    sys.exit(task.main())
