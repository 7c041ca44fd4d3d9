"""Launch multi-worker TensorFlow training: on this machine first, then on Google Cloud."""

__version__ = "0.1.0"
