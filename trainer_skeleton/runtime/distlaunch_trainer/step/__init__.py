"""A step on all replicas: shares of the loss, gradients, statistics, metrics, random numbers."""
