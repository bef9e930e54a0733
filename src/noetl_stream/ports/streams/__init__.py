"""What is stored in NATS JetStream or passes through NATS, as Protocols."""
