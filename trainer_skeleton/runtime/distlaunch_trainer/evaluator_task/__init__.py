"""The evaluator task, which evaluates checkpoints beside the training."""
