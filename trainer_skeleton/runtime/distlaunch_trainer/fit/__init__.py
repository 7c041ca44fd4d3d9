"""Run a script that calls Keras's ``fit`` on several workers, without changes to the script.

``python -m distlaunch_trainer.fit train.py [ARGS]``, or ``-m trainer.task [ARGS]``. Modules:

``script``       the cluster, then the script as ``__main__``; the run's events and summary
``program``      the file or module that is run
``default_strategy``  the strategy that the script gets, whichever it makes
``runtime_settings``  what it sets by ``tf.config`` too late
``remedies``     how to fix what is not for several replicas, or for another TensorFlow
``session``      its calls of ``fit``, ``evaluate`` and ``predict``, which run the trainer's loop
``keras_data``   the data of a call, read as Keras reads them
``prediction``   ``predict`` on several tasks
``legacy``       the calls of scripts of tf_keras
``interception`` the arguments of a script's calls
``chief_files``  files that only the chief writes
``project``      a project's model under plain ``fit``, for comparisons; ``plain_fit``
"""
