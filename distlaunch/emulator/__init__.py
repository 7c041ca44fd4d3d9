"""Vertex AI's job service on loopback, with the logs and the storage that its jobs need.

`http` serves the APIs of `jobs`, `logs` and `buckets`. `job_runner` takes a job of the `store` from
state to state; `trials` runs the trials of a tuning job, `replica_group` runs and restarts
replicas, which `docker` starts as containers and `process` as processes. What is accepted follows
Google's documentation by rules that are the emulator's own, so that it finds what the launcher's
own checks overlook.
"""
