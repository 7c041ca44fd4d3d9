"""Runs jobs.

`job_runner` takes a job from state to state; `replica_group` runs and restarts its replicas;
`trials` runs those of a tuning job. `backend` defines what `docker` and `process` do: start
replicas as containers or as processes.
"""
