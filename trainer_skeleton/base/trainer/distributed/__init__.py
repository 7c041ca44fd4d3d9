"""The engine room: one model, trained alike on one worker or on many.

The rooms, in the order in which data flows through them:

``run``       a run from its settings to its exit code, through all of these
``cluster``   which task this process is, and what the tasks agree on
``waiting``   names the peers that have not come
``plan``      pure arithmetic: which worker reads which example at which step
``index``     where each record lies in the files
``input``     the plan and the index made into a ``tf.data`` pipeline
``step``      one step of training or evaluation on one replica
``loop``      epochs, callbacks, validation, checkpoints, stopping
``saving``    checkpoints and the finished model
``storage``   local paths, ``/gcs/...`` and ``gs://...`` alike
``report``    events for a launcher, the summary, the chief's lines
``errors``    what can go wrong; ``explain`` makes one line of it, with the place

You write ``trainer/model.py`` and ``trainer/data.py``; this folder is replaced as a whole when it
is upgraded, so changes made here do not last.
"""

__version__ = "0.1.0"
