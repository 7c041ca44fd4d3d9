"""Jobs on a Slurm cluster, launched from a machine with Slurm's commands."""
