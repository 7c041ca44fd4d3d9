"""distlaunch's trainer: one model, trained alike on one worker or on many.

``Run`` is a training run of one task; ``Records``, ``Tfds``, ``ImageFolder``, ``Csv`` and
``Arrays`` are data; ``launch`` makes a program of a training function. ``fit_script`` and
``distributed_fit`` have ``fit`` of a program train on all tasks. A run in the order of its rooms:

``process``, ``run``     a task's process, and the run in it: ``run_start`` joins the cluster and
                         the job, ``loop_choice`` makes the loop, ``run_facts`` the figures
``fit``                  the same for a finished script that calls ``fit()``
``cluster``              the tasks of TF_CONFIG, their devices and strategy
``input``                the data, divided over the replicas
``model``                the user's model
``step``                 a step of training or evaluation on all replicas
``loop``                 epochs, validation and callbacks, until all tasks stop together
``parameter_server``     another loop, for jobs with parameter servers
``saving``               checkpoints and models; ``training_state`` is how far a run is
``evaluator_task``       the evaluator task
``report``               events, lines, summary, TensorBoard
``keras_compat``         every private name of Keras that is used
``task``                 what a process prints, stores and ends with; ``errors`` has one line each
``options``              the options of the command line
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fit.script import distributed_fit, fit_script
    from .input.downloads import downloading
    from .input.examples.arrays import Arrays
    from .input.examples.csv_files import Csv
    from .input.examples.image_folder import ImageFolder
    from .input.examples.tfds import Tfds
    from .input.preview import first_batch
    from .input.records.records import Records
    from .process import launch
    from .run import Run

__version__ = "0.1.0"
__all__ = [
    "Arrays",
    "Csv",
    "ImageFolder",
    "Records",
    "Run",
    "Tfds",
    "distributed_fit",
    "downloading",
    "first_batch",
    "fit_script",
    "launch",
]

_MODULES = {
    "Arrays": "input.examples.arrays",
    "Csv": "input.examples.csv_files",
    "ImageFolder": "input.examples.image_folder",
    "Records": "input.records.records",
    "Run": "run",
    "Tfds": "input.examples.tfds",
    "distributed_fit": "fit.script",
    "downloading": "input.downloads",
    "first_batch": "input.preview",
    "fit_script": "fit.script",
    "launch": "process",
}


def __getattr__(name: str) -> Any:
    """Import what is used: options are reported without waiting for TensorFlow."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
