"""Run a script that calls Keras's ``fit`` on several workers, without changes to the script.

``python -m distlaunch_trainer.fit train.py [ARGS]``, or ``-m trainer.task [ARGS]``. Modules:

``script``       the cluster, then the script as ``__main__``; the run's events and summary
``program``      the file or module that is run
``default_strategy``  the strategy that the script gets, whichever it makes
``runtime_settings``  what it sets by ``tf.config`` too late
``remedies``     how to fix what is not for several replicas, or for another TensorFlow
``hooks``        Keras's ``fit``, ``evaluate`` and ``predict`` on several replicas
``batches``      the rows of each global batch that a replica reads
``weighting``    gradients, metrics and logs of uneven batches
``session``      the calls of ``fit`` of a script
``progress``     a callback: events, stopping together
``backup``       the state of a call, from which a later run resumes it
``legacy``       the same three for scripts of tf_keras
``interception`` the arguments of a script's calls
``agreement``    the steps at which all tasks agree to stop
``chief_files``  files that only the chief writes
``project``      a project's model under plain ``fit``, for comparisons; ``plain_fit``
"""
