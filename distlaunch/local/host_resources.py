"""How this machine's cores and GPUs are shared out: pure arithmetic, and what there is to share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import distributions
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from distlaunch.job.tf_config import EXPECTED_GPUS
from distlaunch.text import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distlaunch.job.tasks import Task

T = TypeVar("T")

THREAD_VARIABLES = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
NO_GPU = "-1"  # what CUDA_VISIBLE_DEVICES has to be for none to be seen

_NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class HostResources:
    """What this process may use of this machine."""

    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return a text such as ``2 cores, no GPU``."""
        gpus = plural(len(self.gpus), "GPU") if self.gpus else "no GPU"
        return f"{plural(len(self.cores), 'core')}, {gpus}"


@dataclass(frozen=True, slots=True)
class Share:
    """One task's part: the cores it is pinned to (None: any), its threads and its GPUs."""

    cores: tuple[int, ...] | None
    threads: int
    gpus: tuple[str, ...]

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that hold a task to its share, but for threads already `given`."""
        threads = {name: str(self.threads) for name in THREAD_VARIABLES if name not in given}
        return threads | {
            "CUDA_VISIBLE_DEVICES": ",".join(self.gpus) or NO_GPU,
            EXPECTED_GPUS: str(len(self.gpus)),
        }


def this_machine(env: Mapping[str, str]) -> HostResources:
    """Return what this process may use; the job's `env` wins over that of this process."""
    return HostResources(_cores(), _gpus({**os.environ, **env}))


def has_cpu_tensorflow() -> bool:
    """Return whether the TensorFlow that is installed here is the build without CUDA."""
    return any(distributions(name="tensorflow-cpu"))


def share_out(machine: HostResources, tasks: Sequence[Task]) -> dict[Task, Share]:
    """Give each task its part.

    With fewer cores than training tasks no task is pinned, with fewer GPUs than training tasks no
    task gets one. All training tasks get the same number of GPUs, which
    MultiWorkerMirroredStrategy needs. Parameter servers and evaluators are never pinned and get no
    GPU.
    """
    training = [task for task in tasks if task.is_training]
    cores = split_evenly(machine.cores, len(training))
    used = len(machine.gpus) // len(training) * len(training)
    gpus = split_evenly(machine.gpus[:used], len(training))
    threads = max(1, len(machine.cores) // len(training))
    shares = {task: Share(None, threads, ()) for task in tasks}
    for task, own_cores, own_gpus in zip(training, cores, gpus, strict=True):
        shares[task] = Share(own_cores or None, len(own_cores) or 1, own_gpus)
    return shares


def split_evenly(items: Sequence[T], parts: int) -> list[tuple[T, ...]]:
    """Cut items into contiguous parts of even size; all are empty if there are too few items."""
    count = len(items) if len(items) >= parts else 0
    ends = [count * part // parts for part in range(parts + 1)]
    return [tuple(items[start:end]) for start, end in pairwise(ends)]


def _cores() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        gpus = _NVIDIA_GPUS.iterdir() if _NVIDIA_GPUS.is_dir() else ()
        return tuple(str(number) for number, _ in enumerate(gpus))
    entries = [entry.strip() for entry in visible.split(",")]
    # CUDA ignores the entries after an invalid one.
    return tuple(takewhile(lambda entry: entry and not entry.startswith("-"), entries))
