"""A job's source → an image by digest."""
