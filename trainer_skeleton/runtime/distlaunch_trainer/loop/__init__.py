"""The training loop: epochs, callbacks, validation, and the state that a checkpoint holds."""
