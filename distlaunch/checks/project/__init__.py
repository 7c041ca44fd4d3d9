"""Rules for a project's code and requirements. Files are read, and nothing is executed."""
