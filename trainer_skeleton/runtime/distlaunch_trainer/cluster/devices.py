"""The devices of this task: what it should have, what TensorFlow sees, and why it sees less."""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from distlaunch_trainer.errors import DeviceError
from distlaunch_trainer.task import messages

from .virtual_devices import make_virtual_devices

_EXPECTED = "DISTLAUNCH_EXPECTED_GPUS"
_DRIVER = "libcuda.so.1"
_CUDNN = "libcudnn.so.{}"
# What TensorFlow opens beside cuDNN. All releases from 2.16 to 2.21 are built with CUDA 12
# (https://www.tensorflow.org/install/source#gpu).
_CUDA_12 = (
    "libcudart.so.12",
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcufft.so.11",
    "libcurand.so.10",
    "libcusolver.so.11",
    "libcusparse.so.12",
    "libcupti.so.12",
    "libnvrtc.so.12",
    "libnvJitLink.so.12",
    "libnccl.so.2",
)


def prepare(task: str, environ: Mapping[str, str], *, allow_cpu: bool, memory_growth: bool) -> None:
    """Make virtual devices, print this task's devices, and check them before the tasks meet."""
    make_virtual_devices(environ)
    messages.info(describe_devices())
    warning = check_gpus(task, environ, allow_cpu=allow_cpu)
    if warning:
        messages.warning(warning)
    if memory_growth:
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, enable=True)


def check_gpus(task: str, environ: Mapping[str, str], *, allow_cpu: bool) -> str | None:
    """Refuse fewer GPUs than ``DISTLAUNCH_EXPECTED_GPUS``, or return a warning to continue with."""
    expected = int(environ.get(_EXPECTED) or 0)
    seen = len(tf.config.list_physical_devices("GPU"))
    if seen >= expected:
        return None
    reasons = "; ".join(missing_gpu_reasons(environ)) or "see TensorFlow's log above"
    problem = (
        f"{task}: expected {messages.counted(expected, 'GPU')} ({_EXPECTED}), "
        f"TensorFlow sees {seen or 'none'}: {reasons}"
    )
    if allow_cpu:
        return f"{problem}; continuing because of --allow-cpu"
    raise DeviceError(f"{problem}; --allow-cpu trains anyway")


def missing_gpu_reasons(
    environ: Mapping[str, str],
    build: Mapping[str, Any] | None = None,
    device_folder: Path = Path("/dev"),
) -> Iterator[str]:
    """Yield why TensorFlow sees no GPU or fewer than there are."""
    build = tf.sysconfig.get_build_info() if build is None else build
    if not build.get("is_cuda_build"):
        yield f"TensorFlow {tf.__version__} is built without CUDA (install tensorflow[and-cuda])"
        return
    if "CUDA_VISIBLE_DEVICES" in environ:
        yield f"CUDA_VISIBLE_DEVICES is {environ['CUDA_VISIBLE_DEVICES']!r}"
    if not any(device_folder.glob("nvidia[0-9]*")):
        yield f"no device file {device_folder}/nvidia0 (the container was started without GPUs)"
    driver = _open(_DRIVER)
    if driver is None:
        path = environ.get("LD_LIBRARY_PATH", "")
        yield (
            f"driver library {_DRIVER} not found (LD_LIBRARY_PATH is {path!r}; Vertex AI mounts "
            "the driver in /usr/local/nvidia/lib64)"
        )
        return
    if code := _call(driver, "cuInit", 0):
        yield f"the driver does not start (cuInit returned {code})"
    # TensorFlow has opened what it finds in folders of its own; that is found by its name now.
    missing = [name for name in (*_CUDA_12, _cudnn(build)) if _open(name) is None]
    if missing:
        yield (
            f"cannot open {', '.join(missing)} (install tensorflow[and-cuda], and add its folders "
            "nvidia/*/lib to LD_LIBRARY_PATH)"
        )


def describe_devices() -> str:
    """Return this task's devices and the libraries that TensorFlow is built for.

    For example ``2 GPUs (Tesla T4) · TensorFlow 2.21.0 for CUDA 12.5.1, cuDNN 9``, or ``no GPU, 2
    CPU cores · TensorFlow 2.21.0 without CUDA``.
    """
    gpus = Counter(map(_gpu_name, tf.config.list_physical_devices("GPU")))
    devices = [f"{messages.counted(count, 'GPU')} ({name})" for name, count in gpus.items()]
    build = tf.sysconfig.get_build_info()
    libraries = "without CUDA"
    if build.get("is_cuda_build"):
        libraries = f"for CUDA {build.get('cuda_version')}, cuDNN {build.get('cudnn_version')}"
    none = f"no GPU, {messages.counted(usable_cores(), 'CPU core')}"
    return f"{', '.join(devices) or none} · TensorFlow {tf.__version__} {libraries}"


def _gpu_name(gpu: tf.config.PhysicalDevice) -> str:
    name: str = tf.config.experimental.get_device_details(gpu).get("device_name", "unknown")
    return name


def _cudnn(build: Mapping[str, Any]) -> str:
    return _CUDNN.format(str(build.get("cudnn_version", "9")).partition(".")[0])


def _open(soname: str) -> Any:
    """Open a shared library where the dynamic loader finds it, None where it cannot."""
    try:
        return ctypes.CDLL(soname)
    except OSError:
        return None


def _call(library: Any, function: str, *arguments: Any) -> int:
    """Call a function that returns 0 on success; -1 if the library has no such function."""
    try:
        return int(getattr(library, function)(*arguments))
    except AttributeError:
        return -1


def usable_cores() -> int:
    """Return the number of CPU cores that this process may run on."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
