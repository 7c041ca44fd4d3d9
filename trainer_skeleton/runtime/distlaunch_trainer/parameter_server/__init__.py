"""Training with parameter servers: a chief coordinates workers, which train asynchronously.

The model of `Run` is the chief's copy. Its variables are copied to the parameter servers,
partitioned if they are large; workers read them, compute gradients and apply them there. After each
epoch, and for a checkpoint, the chief reads them back. So validation, callbacks, checkpoints and
saving are those of one process.
"""
