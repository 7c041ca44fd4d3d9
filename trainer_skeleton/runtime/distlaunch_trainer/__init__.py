"""distlaunch's trainer: one model, trained alike on one worker or on many.

``Run`` is a training run of one task; ``Records``, ``Tfds``, ``ImageFolder``, ``Csv`` and
``Arrays`` are data; ``launch`` makes a program of a training function. Modules, in the order in
which data flows through them:

``options``          the options of the command line
``process``          a task's environment, signals and exit code; ``stop_signal``: SIGTERM;
                     ``messages``: what a task prints
``run``              a run: cluster, data, model, training and saving; ``run_start``: where it
                     starts or resumes; ``run_facts``: its figures
``job_folders``      the folders that a job writes to
``cluster``          the tasks of TF_CONFIG, and collectives between them
``strategy``         the ``tf.distribute`` strategy, chosen from cluster and devices
``peer_watchdog``    a program that names missing peers; ``devices``: GPUs; ``virtual_devices``
``data_setup``       the data, sharded, as of the run that is resumed
``example_source``   what Records, Arrays and the like have in common, and options of reading
``records``          Records; ``tfds``: Tfds; ``image_folder``: ImageFolder; ``arrays``: Arrays;
                     ``csv_files``: Csv
``example_parser``   parsing one by one; ``example_cache``: what was parsed in an earlier epoch
``downloads``        downloads by one task of a machine at a time
``record_index``     the byte offsets of records; ``tfrecord_scanner`` finds them
``plan``             pure arithmetic: which replica reads which example at which step
``epoch_order``      the order of the examples of a pass
``pipeline``         examples, plan and order as a ``tf.data`` pipeline
``user_dataset``     a user's ``tf.data.Dataset``; ``python_data``: a PyDataset or generator
``shard_policy``     how a user's batches are sharded; ``batch_sharding``: the rows of a replica;
                     ``work_division``: so that each task makes its own rows alone
``batch_rows``       the rows of a batch; ``fingerprints``: which rows were seen
``preview``          the first rows of the data, for a project's test
``user_model``       the model and the callbacks that a user's functions return
``model_build``      the variables of a model; ``custom_steps``: its own training steps
``learning_rate``    rates by options: scaled, warm-up, decay
``model_replicas``   a model on all replicas, and what steps share: ``losses``, ``normalization``,
                     ``replica_metrics``, ``local_updates``, ``step_logs``
``training_step``    a training step; ``evaluation_step``, ``all_reduce``, ``accumulation``,
                     ``optimizer``
``step_functions``   the compiled executions of several steps; ``steps_per_execution``: how many
``evaluator``        evaluation: the same numbers on any number of workers
``evaluation``       evaluations of saved models, and in callbacks
``continuous_evaluation``  the evaluator task; ``evaluator_status``: what it and the chief share;
                     ``best_model``: the best model so far
``loop``             epochs, validation, checkpoints, stopping together; ``loop_choice``: it, or
                     that of ``parameter_server``
``step_watchdog``    a step that never ends
``callbacks``        which callbacks run on which task, and their state
``checkpoints``      checkpoints; ``run_state``, ``model_state``, ``variable_names``: what they hold
``model_files``      the files of the trained model
``storage``          local paths, ``/gcs/...`` and ``gs://...`` alike
``parameter_server`` training with parameter servers, on the chief and on their servers
``fit``              a finished script that calls ``fit()``, on all tasks
``keras_compat``     every private name of Keras that is used
``report``           ``events`` for a launcher, the summary, the chief's output; ``hypertune``: the
                     metrics of a tuning trial
``tensorboard``      what is written for TensorBoard; ``utilization``, ``profile``
``step_timing``      where the time of steps goes; ``measurements``: what else is measured of them;
                     ``host_variable``: what it is counted in
``audit``            what a task trained on, for a launcher that requests it
``errors``           errors with one line each; ``explain`` finds the line and its location
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arrays import Arrays
    from .csv_files import Csv
    from .downloads import downloading
    from .image_folder import ImageFolder
    from .preview import first_batch
    from .process import launch
    from .records import Records
    from .run import Run
    from .tfds import Tfds

__version__ = "0.1.0"
__all__ = [
    "Arrays",
    "Csv",
    "ImageFolder",
    "Records",
    "Run",
    "Tfds",
    "downloading",
    "first_batch",
    "launch",
]

_MODULES = {
    "Arrays": "arrays",
    "Csv": "csv_files",
    "ImageFolder": "image_folder",
    "Records": "records",
    "Run": "run",
    "Tfds": "tfds",
    "downloading": "downloads",
    "first_batch": "preview",
    "launch": "process",
}


def __getattr__(name: str) -> Any:
    """Import what is used: options are reported without waiting for TensorFlow."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
