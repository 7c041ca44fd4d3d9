"""The engine room: one model, trained alike on one worker or on many.

The rooms, in the order in which data flows through them:

``run``            a run from its settings to its exit code, through all of these
``settings``       the options of a run
``cluster``        which task this process is, and what the tasks agree on
``waiting``        names the peers that have not come
``dealing``        the data: opened, dealt out, held to the order of the run that is resumed
``input``          what ``trainer/data.py`` may give: records in files, or arrays
``index``          where each record lies in the files; ``chain`` finds it out
``plan``           pure arithmetic: which worker reads which example at which step
``pipeline``       the plan and the index made into a ``tf.data`` pipeline
``datasets``       a ``tf.data.Dataset`` of the user's own, as TensorFlow shards it
``step``           one step of training or evaluation, on one replica and on all
``losses``         what one replica's loss is of the loss of the global batch
``normalization``  batch normalisation over all replicas, averages that agree
``optimizer``      the optimizer of several replicas
``stop_signal``    SIGTERM, before training and during it
``loop``           epochs, validation, checkpoints, stopping together
``callbacks``      which callbacks run where, what they see, what they count
``saving``         checkpoints
``model_files``    the files of the finished model
``storage``        local paths, ``/gcs/...`` and ``gs://...`` alike
``report``         events for a launcher, the summary, the chief's lines
``audit``          what a task trains on, reported to a launcher that requests it
``errors``         what can go wrong; ``explain`` makes one line of it, with the place

You write ``trainer/model.py`` and ``trainer/data.py``; this folder is replaced as a whole when it
is upgraded, so changes made here do not last.
"""

__version__ = "0.1.0"
