"""The same work on several clusters of this machine, to see whether distribution pays."""
