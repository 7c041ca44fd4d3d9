"""The tasks of a cluster: roles, devices, strategy, and what they exchange besides training."""
