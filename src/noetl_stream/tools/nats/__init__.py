"""``kind: nats``."""
