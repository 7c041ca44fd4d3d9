"""What runs the jobs.

A `life` takes a job through its states; a `group` is its replicas, which `restarts` may start
again; `trials` are those of a tuned job. `running` says what machines must do, `docker` and
`process` do it.
"""
