"""A task's line about its devices, and the reasons for fewer GPUs than expected."""

from __future__ import annotations

import ctypes.util
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainer.distributed import devices
from trainer.distributed.errors import ClusterError, DeviceError

CUDA_BUILD = {"is_cuda_build": True, "cudnn_version": "9"}
MISSING = "libdistlaunch-missing.so.1"

# Prints the reasons of a process whose dynamic loader finds a driver in LD_LIBRARY_PATH.
REASONS = """
import json, os, sys, types
from pathlib import Path
sys.modules["tensorflow"] = types.ModuleType("tensorflow")  # takes seconds, and is not used here
from trainer.distributed import devices
devices._CUDA_12 = ("libm.so.6", "libdistlaunch-missing.so.12")
devices._CUDNN = "libm.so.6"
build = {"is_cuda_build": True}
print(json.dumps(list(devices.missing_gpu_reasons(os.environ, build, Path(sys.argv[1])))))
"""

# Joins a cluster, the chief with two virtual devices; for TensorFlow they are CPUs.
JOIN = """
import time
from pathlib import Path
import tensorflow as tf
from trainer.distributed.cluster import connect, role_from
from trainer.distributed.devices import check_same_devices
cpu = tf.config.list_physical_devices("CPU")[0]
virtual = [tf.config.LogicalDeviceConfiguration()] * (2 - rank)
tf.config.set_logical_device_configuration(cpu, virtual)
role = role_from(os.environ)
connect(role)
try:
    check_same_devices(role.peers, "CPU")
except Exception as error:
    Path(f"{role.name}.error").write_text(f"{type(error).__name__} {error}")
while len(list(Path().glob("*.error"))) < 2:
    time.sleep(0.05)  # the end of one task ends the other
if rank:
    os._exit(0)
"""


def test_expected_gpus_that_tensorflow_does_not_see():
    environ = {"DISTLAUNCH_EXPECTED_GPUS": "2"}
    with pytest.raises(DeviceError) as refused:
        devices.check_gpus("worker:1", environ, allow_cpu=False)
    assert "is built without CUDA (install tensorflow[and-cuda])" in str(refused.value)

    for nothing in ({}, {"DISTLAUNCH_EXPECTED_GPUS": "0"}):
        assert devices.check_gpus("chief", nothing, allow_cpu=False) is None
    for text in ("one", "-1", "1.5", "1 2"):
        with pytest.raises(ClusterError, match="must be a whole number, got "):
            devices.check_gpus("chief", {"DISTLAUNCH_EXPECTED_GPUS": text}, allow_cpu=True)


def test_a_missing_driver_and_device_file_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "_DRIVER", MISSING)
    environ = {"CUDA_VISIBLE_DEVICES": "1", "LD_LIBRARY_PATH": "/opt/lib"}
    assert list(devices.missing_gpu_reasons(environ, CUDA_BUILD, tmp_path)) == [
        "CUDA_VISIBLE_DEVICES is '1'",
        f"no device file {tmp_path}/nvidia0 (the container was started without GPUs)",
        f"driver library {MISSING} not found (LD_LIBRARY_PATH is '/opt/lib'; Vertex AI mounts the "
        "driver in /usr/local/nvidia/lib64)",
    ]


def test_libraries_that_cannot_be_opened_are_named(python, tmp_path):
    library = ctypes.util.find_library("m")
    assert library
    shutil.copy(_loaded(library), tmp_path / "libcuda.so.1")
    (tmp_path / "nvidia0").touch()
    process = python("-c", REASONS, str(tmp_path), LD_LIBRARY_PATH=str(tmp_path))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(out) == [
        "the driver does not start (cuInit returned -1)",
        "cannot open libdistlaunch-missing.so.12 (install tensorflow[and-cuda], and add its "
        "folders nvidia/*/lib to LD_LIBRARY_PATH)",
    ]


def _loaded(library: str) -> Path:
    """Return the file of a library that the dynamic loader finds by its name."""
    ctypes.CDLL(library)
    maps = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split()[-1]) for line in maps if line.endswith(library))


@pytest.mark.slow
def test_tasks_with_different_numbers_of_devices_are_named(run_two_tasks, tmp_path):
    result = run_two_tasks(JOIN, CUDA_VISIBLE_DEVICES="-1")
    assert result.code == 0, result.text
    for name in ("chief", "worker:0"):
        error = (tmp_path / f"{name}.error").read_text()
        reason = "the tasks have different numbers of CPUs (chief has 2, worker:0 has 1)"
        assert error.startswith(f"DeviceError {reason}")


def test_a_gpu_is_described_by_its_driver():
    def get_device(device, number):
        device._obj.value = number
        return 0

    def total_memory(total, device):
        total._obj.value = (device.value + 1) * 2**30
        return 0

    driver = SimpleNamespace(
        cuInit=lambda _: 0, cuDeviceGet=get_device, cuDeviceTotalMem_v2=total_memory
    )
    assert devices.gpu_memory(driver, 3) == 4 * 2**30
    assert devices.gpu_memory(None, 0) is None
    assert devices.gpu_memory(SimpleNamespace(cuInit=lambda _: 100), 0) is None


@pytest.mark.parametrize(
    ("function", "number", "version"),
    [
        ("cudaRuntimeGetVersion", 12050, "12.5"),
        ("cudnnGetVersion", 90300, "9.3.0"),
        ("cudnnGetVersion", 8906, "8.9.6"),
        ("ncclGetVersion", 2804, "2.8.4"),
    ],
)
def test_versions_are_read_as_nvidia_writes_them(function, number, version):
    def get_version(*arguments):
        if not arguments:
            return number
        arguments[0]._obj.value = number
        return 0

    library = SimpleNamespace(**{function: get_version})
    assert devices.library_version(library, function) == version
    assert devices.library_version(None, function) is None
