"""Batches that the user makes: ``tf.data``, PyDataset, generators."""
