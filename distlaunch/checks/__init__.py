"""Pre-flight checks of a job: its problems, its data and its price.

Each module checks one thing and yields problems. Only `cloud` contacts Google, and only
`trainer.run_one_step` executes code of the project. `preflight.run_checks` runs them all.
"""
