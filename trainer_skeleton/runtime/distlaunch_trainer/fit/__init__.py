"""Run a script that calls Keras's ``fit`` on several workers, without changes to the script."""
