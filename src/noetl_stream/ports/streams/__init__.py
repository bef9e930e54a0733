"""The streams and messages of NATS, as Protocols."""
