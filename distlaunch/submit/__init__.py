"""The story of a submit: its plan, its records and the launch."""
