"""Vertex AI's job service on loopback, with the logs and the storage that its jobs need.

`service` answers calls; jobs are in the `store` and lines in the `logs`; `machines` run the jobs.
What is accepted follows Google's documentation by rules that are the emulator's own, so that it
finds what the launcher's own checks overlook.
"""
