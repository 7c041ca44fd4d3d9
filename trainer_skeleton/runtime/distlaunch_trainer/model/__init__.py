"""The user's model: built for its data, its learning rate, the state of its variables."""
