"""How much of the machine a task uses; what cannot be read is left out."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

_GIB = 1 << 30
# Vertex AI and GKE mount it beside the driver, outside the PATH of an image without CUDA
# (https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#cuda).
_DRIVER_FOLDER = "/usr/local/nvidia/bin"
_QUERY = ("--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits")


class Utilization:
    """Measures from one call of `measure` to the next."""

    def __init__(self) -> None:
        self._time, self._cpu, self._machine = time.monotonic(), _cpu_seconds(), _machine_ticks()

    def measure(self) -> dict[str, float]:
        """Return shares since the last call, and memory in GiB now, by the names of figures.

        ``cpu_cores`` is the mean number of cores that this process kept busy, ``cpu_machine`` the
        share of all cores that were, ``memory_machine_gib`` what all processes use.
        """
        before, cpu_before, machine_before = self._time, self._cpu, self._machine
        self._time, self._cpu, self._machine = time.monotonic(), _cpu_seconds(), _machine_ticks()
        values = {"cpu_cores": (self._cpu - cpu_before) / max(self._time - before, 1e-9)}
        if machine_before and self._machine:
            busy, ticks = (b - a for a, b in zip(machine_before, self._machine, strict=True))
            values["cpu_machine"] = busy / max(ticks, 1)
        with suppress(OSError, ValueError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            values["memory_gib"] = pages * os.sysconf("SC_PAGE_SIZE") / _GIB
        with suppress(OSError, ValueError, KeyError):
            rows = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
            kib = {name: int(rest.split()[0]) for name, _, rest in (r.partition(":") for r in rows)}
            values["memory_machine_gib"] = (kib["MemTotal"] - kib["MemAvailable"]) * 1024 / _GIB
        return values


def measure_gpus() -> dict[str, float]:
    """Return the mean share and all memory of this task's GPUs now, those that CUDA may use.

    It takes up to 5 seconds, if ``nvidia-smi`` does not respond.
    """
    smi = shutil.which("nvidia-smi", path=f"{os.environ.get('PATH', os.defpath)}:{_DRIVER_FOLDER}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if smi is None or visible in ("", "-1"):
        return {}
    command = [smi, *_QUERY, *([f"--id={visible}"] if visible else [])]
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        rows = [[float(cell) for cell in line.split(",")] for line in done.stdout.splitlines()]
        shares, used = zip(*rows, strict=True)  # ValueError without GPUs
        return {"gpu": sum(shares) / len(shares) / 100, "gpu_memory_gib": sum(used) / 1024}
    return {}


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def _machine_ticks() -> tuple[int, int] | None:
    """Return the busy and all ticks of the machine's cores since its start (proc(5))."""
    with suppress(OSError, ValueError):
        with Path("/proc/stat").open(encoding="ascii") as file:
            ticks = [int(number) for number in file.readline().split()[1:9]]
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
    return None
