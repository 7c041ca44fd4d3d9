"""Vertex AI's job service on loopback, with the logs and the storage that its jobs need.

`server` listens, `routes` finds the `service` that a request is for (`job_service`, `log_service`,
`storage`); jobs are in the `store` and lines in the `logs`. `life` runs the jobs. What is accepted
follows Google's documentation by rules that are the emulator's own (`parsing`, `rules`), so that it
finds what the launcher's own checks overlook.
"""
