"""A search for the best options of a program: its trials here and in the cloud, and their table."""
