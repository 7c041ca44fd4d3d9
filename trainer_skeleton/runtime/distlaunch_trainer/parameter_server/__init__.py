"""Training with parameter servers: a chief coordinates workers, which train asynchronously.

The model of `Run` is the chief's copy. Its variables are copied to the parameter servers,
partitioned if they are large; workers read them, compute gradients and apply them there. After each
epoch, and for a checkpoint, the chief reads them back. So validation, callbacks, checkpoints and
saving are those of one process.

``addresses``         whether something listens at an address
``servers``           the worker and ps tasks: TensorFlow servers until the job ends
``connection``        the chief's connection to them
``partition``         which part of a variable is on which server
``server_variables``  the variables of model and optimizer on the servers
``worker_data``       the data, which each worker reads in an order of its own
``worker_step``       a training step on a worker
``schedule``          steps that are scheduled, and their results in order
``lost_workers``      warns of a worker that is gone, and ends the chief if all are
``coordinator_loop``  epochs, validation, checkpoints and stopping
"""
