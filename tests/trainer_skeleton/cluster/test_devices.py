"""A task's line about its devices, and the reasons for fewer GPUs than expected."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from distlaunch_trainer.cluster import devices
from distlaunch_trainer.errors import DeviceError

CUDA_BUILD = {"is_cuda_build": True, "cudnn_version": "9"}
MISSING = "libdistlaunch-missing.so.1"


def test_expected_gpus_that_tensorflow_does_not_see():
    environ = {"DISTLAUNCH_EXPECTED_GPUS": "2"}
    with pytest.raises(DeviceError) as refused:
        devices.check_gpus("worker:1", environ, allow_cpu=False)
    assert "is built without CUDA (install tensorflow[and-cuda])" in str(refused.value)

    for nothing in ({}, {"DISTLAUNCH_EXPECTED_GPUS": "0"}):
        assert devices.check_gpus("chief", nothing, allow_cpu=False) is None


def test_a_missing_driver_and_device_file_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "_DRIVER", MISSING)
    environ = {"CUDA_VISIBLE_DEVICES": "1", "LD_LIBRARY_PATH": "/opt/lib"}
    assert list(devices.missing_gpu_reasons(environ, CUDA_BUILD, tmp_path)) == [
        "CUDA_VISIBLE_DEVICES is '1'",
        f"no device file {tmp_path}/nvidia0 (the container was started without GPUs)",
        f"driver library {MISSING} not found (LD_LIBRARY_PATH is '/opt/lib'; Vertex AI mounts the "
        "driver in /usr/local/nvidia/lib64)",
    ]


def test_a_driver_that_does_not_start_and_libraries_that_cannot_be_opened_are_named(
    monkeypatch, tmp_path
):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(devices, "_DRIVER", "libm.so.6")  # without cuInit()
    monkeypatch.setattr(devices, "_CUDA_12", ("libm.so.6", MISSING))
    monkeypatch.setattr(devices, "_CUDNN", "libm.so.6")
    assert list(devices.missing_gpu_reasons({}, {"is_cuda_build": True}, tmp_path)) == [
        "the driver does not start (cuInit returned -1)",
        f"cannot open {MISSING} (install tensorflow[and-cuda], and add its folders nvidia/*/lib to "
        "LD_LIBRARY_PATH)",
    ]


def test_the_memory_of_a_gpu_is_read_from_its_driver():
    def set_device(device, number):
        device._obj.value = number
        return 0

    def set_total(total, device):
        total._obj.value = (device.value + 1) * 2**30
        return 0

    calls = {"cuInit": lambda _: 0, "cuDeviceGet": set_device, "cuDeviceTotalMem_v2": set_total}
    assert devices.gpu_memory(SimpleNamespace(**calls), 3) == 4 * 2**30
    assert devices.gpu_memory(SimpleNamespace(cuInit=lambda _: 100), 0) is None
    assert devices.gpu_memory(None, 0) is None


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
