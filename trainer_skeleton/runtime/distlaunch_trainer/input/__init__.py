"""The data of a run: opened by ``data_setup``, divided over the replicas, read as ``batches``."""
