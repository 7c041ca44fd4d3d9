"""The places where jobs run."""
