"""What a user sees of a run or a job: console, progress and summaries."""
