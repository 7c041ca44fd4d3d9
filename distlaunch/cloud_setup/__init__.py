"""What jobs need in a project of Google Cloud: created once, and removed again.

`names` completes the job, and `cloud_resources` looks up, creates and removes what it names.
"""
