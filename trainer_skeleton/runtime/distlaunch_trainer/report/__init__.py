"""What a run reports: events, lines, ``summary.json``, TensorBoard, tuning, profile, audit."""
