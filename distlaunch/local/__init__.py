"""A job on this machine: one process a task, and none left behind."""
