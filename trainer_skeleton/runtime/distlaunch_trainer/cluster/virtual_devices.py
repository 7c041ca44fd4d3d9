"""Virtual devices: the CPU as several devices, to try several replicas per task without GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

from distlaunch_trainer.errors import ClusterError

VARIABLE = "DISTLAUNCH_DEVICES"


def make_virtual_devices(environ: Mapping[str, str]) -> None:
    """Divide the CPU into as many devices as ``DISTLAUNCH_DEVICES`` requests.

    To be called before TensorFlow uses a device.
    """
    text = environ.get(VARIABLE) or "1"
    if not re.fullmatch("[1-9][0-9]{0,2}", text):
        raise ClusterError(f"{VARIABLE} must be a whole number from 1, got {text!r}")
    count = int(text)
    if count > 1 and len(replica_devices()) != count:  # of a second run in one process, there are
        cpu = tf.config.list_physical_devices("CPU")[0]
        configurations = [tf.config.LogicalDeviceConfiguration()] * count
        tf.config.set_logical_device_configuration(cpu, configurations)


def replica_devices() -> list[str]:
    """Return the devices of this task that a strategy trains on: GPUs, else CPUs.

    They are not opened: a cluster has to be formed before.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return [f"GPU:{number}" for number in range(len(gpus))]
    cpu = tf.config.list_physical_devices("CPU")[0]
    configurations = tf.config.get_logical_device_configuration(cpu) or [None]
    return [f"CPU:{number}" for number in range(len(configurations))]


@contextmanager
def as_worker_devices(devices: list[str]) -> Iterator[None]:
    """Let MultiWorkerMirroredStrategy train on several CPU devices; by itself it takes one.

    It does so with the devices of GPUs, and no public option does for CPUs.
    """
    extended = CollectiveAllReduceExtended
    original = extended._initialize_local_devices  # noqa: SLF001

    def local_devices(_self: Any, _resolver: Any, worker_device: str) -> tuple[Any, str]:
        return tuple(f"{worker_device}/device:{device}" for device in devices), "CPU"

    if len(devices) > 1 and devices[0].startswith("CPU"):
        extended._initialize_local_devices = local_devices  # noqa: SLF001
    try:
        yield
    finally:
        extended._initialize_local_devices = original  # noqa: SLF001
