"""distlaunch's trainer: one model, trained alike on one worker or on many.

``Run`` is a training run of one task; ``Records``, ``Tfds``, ``ImageFolder``, ``Csv`` and
``Arrays`` are data; ``launch`` makes a program of a training function. ``distributed_fit``
has ``fit`` of a program train on all tasks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fit.script import distributed_fit as distributed_fit
    from .input.downloads import downloading as downloading
    from .input.examples.arrays import Arrays as Arrays
    from .input.examples.csv_files import Csv as Csv
    from .input.examples.image_folder import ImageFolder as ImageFolder
    from .input.examples.tfds import Tfds as Tfds
    from .input.preview import first_batch as first_batch
    from .input.records.records import Records as Records
    from .process import launch as launch
    from .run import Run as Run

__version__ = "0.1.0"
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
    "launch": "process",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Import what is used: options are reported without waiting for TensorFlow."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
