"""Read and write images in a container registry over its HTTP API, without Docker."""
