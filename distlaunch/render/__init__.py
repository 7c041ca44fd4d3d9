"""Dockerfile, .dockerignore and config.yaml as text, and the files that `render` writes."""
