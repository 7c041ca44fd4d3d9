"""Files of the job folder: checkpoints, the finished model, the best model."""
