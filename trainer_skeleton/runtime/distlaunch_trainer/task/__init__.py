"""The process of a task: what it prints, its files and signals, and errors in one line."""
