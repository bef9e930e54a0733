"""``kind: postgres``."""
