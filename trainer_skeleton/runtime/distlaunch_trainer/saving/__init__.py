"""Files of the job folder: checkpoints, the finished model."""
