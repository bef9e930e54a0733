"""Questions that any server answers over NATS."""
