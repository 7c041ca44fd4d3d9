"""Runs a script of `fit` in one process with two virtual devices, as on a machine with two GPUs.

python -m two_devices OPTIONS SCRIPT
"""

from __future__ import annotations

import sys

import tensorflow as tf

from distlaunch_trainer.fit import __main__, script

DEVICES = ["CPU:0", "CPU:1"]

cpu = tf.config.list_physical_devices("CPU")[0]
configurations = [tf.config.LogicalDeviceConfiguration()] * len(DEVICES)
tf.config.set_logical_device_configuration(cpu, configurations)
strategy = tf.distribute.MirroredStrategy(DEVICES)
script.connect = lambda _: strategy
sys.exit(__main__.main())
