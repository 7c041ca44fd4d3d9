"""Runs on this machine and jobs in the cloud, afterwards: what they were, and how they differ."""
