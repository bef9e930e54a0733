"""``kind: http``."""
