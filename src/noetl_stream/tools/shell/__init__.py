"""``kind: shell``."""
