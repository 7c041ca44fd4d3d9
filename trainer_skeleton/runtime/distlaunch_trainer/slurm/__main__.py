"""``srun python -m distlaunch_trainer.slurm -- PROGRAM``: run a program as tasks of a cluster."""

from __future__ import annotations

import os
import sys

from distlaunch_trainer.errors import ClusterError
from distlaunch_trainer.slurm.environment import environment, export_lines
from distlaunch_trainer.slurm.program import run


def main() -> int:
    """Run the words after ``--`` as this task's program; without any, print its variables."""
    words = sys.argv[1:]
    program = words[words.index("--") + 1 :] if "--" in words else []
    try:
        if program:
            return run(program, os.environ)
        print("\n".join(export_lines(environment(os.environ))))
    except (ClusterError, OSError) as problem:
        print(f"distlaunch_trainer.slurm: error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
