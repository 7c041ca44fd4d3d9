"""What a GPU cluster's image has beside pip's packages: paths for the loader, NCCL's settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from distlaunch.job import machine_catalogue

if TYPE_CHECKING:
    from pathlib import Path

    from distlaunch.image.dockerfile_parser import Instruction
    from distlaunch.job.model import Job

# TensorFlow opens the CUDA libraries by name, and the RUNPATH of its libtensorflow_framework.so.2
# does not name all of their folders (2.21: not cusolver, curand, nvjitlink, nvrtc). LD_LIBRARY_PATH
# cannot name them either: they depend on the image's Python, and a Dockerfile cannot compute a
# variable. So it names one folder with symlinks to all libraries. That is not in /usr/local/nvidia,
# over which Google's training services mount the driver.
FOLDER = "/usr/local/lib/nvidia-wheels"

# Of two libraries of the same name the one that is first on Python's path is used.
LINK_COMMAND = rf"""mkdir -p {FOLDER} && \
    for folder in $(python -c 'import sys; print(*sys.path)'); do \
      for library in "$folder"/nvidia/*/lib/*.so*; do \
        link="{FOLDER}/${{library##*/}}"; \
        if [ -e "$library" ] && [ ! -e "$link" ]; then ln -sf "$library" "$link"; fi; \
      done; \
    done"""

_LIBRARY = re.compile(r"nvidia/[^/]+/lib/[^/]+\.so[^/]*")
_NCCL_SETTINGS = "/usr/local/gib/scripts/set_nccl_env.sh"


def is_link_step(instruction: Instruction) -> bool:
    """Whether an instruction runs `LINK_COMMAND`."""
    command = LINK_COMMAND.replace("\\\n", "").split()
    return instruction.word == "RUN" and instruction.rest.split() == command


def is_library(path: str) -> bool:
    """Whether `LINK_COMMAND` creates a symlink to a path in site-packages."""
    return _LIBRARY.fullmatch(path) is not None


def entrypoint(job: Job, folder: Path) -> tuple[str, ...]:
    """Return the program of a job's image, for the machines of its project's catalogue.

    If the cluster has a machine with RDMA, a script that Google mounts there sets NCCL's variables
    first; elsewhere the script does not exist.
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/configure-compute
    """
    program = ("python", "-m", *job.main)
    catalogue = machine_catalogue.of_project(folder)
    if not any(catalogue.machine(pool.machine.type).rdma for pool in job.cluster.pools if pool):
        return program
    command = f'if [ -f {_NCCL_SETTINGS} ]; then source {_NCCL_SETTINGS}; fi; exec "$@"'
    return ("bash", "-c", command, "bash", *program)
