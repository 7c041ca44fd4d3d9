"""A task's line about its devices, and the reasons for fewer GPUs than expected."""

from __future__ import annotations

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


def test_gpus_are_counted_by_their_names(monkeypatch):
    names = ["Tesla T4", "Tesla T4", None]
    monkeypatch.setattr(devices.tf.config, "list_physical_devices", lambda _: names)
    details = lambda name: {"device_name": name} if name else {}  # noqa: E731
    monkeypatch.setattr(devices.tf.config.experimental, "get_device_details", details)
    build = {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9"}
    monkeypatch.setattr(devices.tf.sysconfig, "get_build_info", lambda: build)
    described = "2 GPUs (Tesla T4), 1 GPU (unknown) · TensorFlow "
    assert devices.describe_devices().startswith(described)
    assert devices.describe_devices().endswith(" for CUDA 12.5.1, cuDNN 9")
