"""Live events (PROTOCOL §4)."""
