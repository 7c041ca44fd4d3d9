"""What a job is, and the formats it is read from and written to."""
