"""Tasks of a Slurm job; nothing but Python's library is needed."""
