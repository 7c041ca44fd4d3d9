"""What answers calls.

`server` listens, `routes` finds the service that a request is for (`job_service`, `log_service`,
`storage_service`), `parsing` and `rules` say what is refused and in which words.
"""
