"""Vertex AI's job service on loopback, with the logs and the storage that its jobs need.

`http` serves the APIs of `jobs`, `logs` and `buckets`; `run` runs the jobs of the `store`. What is
accepted follows Google's documentation by rules that are the emulator's own, so that it finds what
the launcher's own checks overlook.
"""
