"""Runs a module in a task of a cluster with two virtual devices, as a task with two GPUs.

    PROGRAM=MODULE python -m virtual_devices ARGUMENTS

A task without a cluster keeps its one device.
"""

from __future__ import annotations

import os
import runpy

import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

from distlaunch_trainer.cluster import role_from

DEVICES = 2


def local_devices(_self, _resolver, worker_device):
    """Replace MultiWorkerMirroredStrategy's own, which takes one CPU only."""
    return tuple(f"{worker_device}/device:CPU:{number}" for number in range(DEVICES)), "CPU"


if role_from(os.environ).num_workers > 1:
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * DEVICES
    tf.config.set_logical_device_configuration(cpu, devices)
    CollectiveAllReduceExtended._initialize_local_devices = local_devices
runpy.run_module(os.environ["PROGRAM"], run_name="__main__", alter_sys=True)
