"""Events as they happen (PROTOCOL §4)."""
