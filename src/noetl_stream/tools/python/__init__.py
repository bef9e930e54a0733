"""``kind: python``."""
