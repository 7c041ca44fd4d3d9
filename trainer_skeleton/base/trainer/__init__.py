"""The training program: ``python -m trainer.task``."""
