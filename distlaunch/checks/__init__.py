"""What can be known of a job before it is submitted: its problems, its data, its price.

Each module here looks at one thing and yields problems; none of them changes anything, and none
but those of `online` and `price` speaks to anybody. `run_checks` asks all of them at once.
"""
