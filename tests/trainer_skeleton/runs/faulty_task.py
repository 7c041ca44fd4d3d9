"""trainer.task with the faults of ``faults``."""

from __future__ import annotations

import sys

import faults  # noqa: F401

from trainer import task

if __name__ == "__main__":
    sys.exit(task.main())
