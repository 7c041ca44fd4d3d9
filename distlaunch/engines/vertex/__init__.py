"""Google's services, spoken to in JSON."""
