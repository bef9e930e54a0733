"""Connections to NATS, with their reads and writes."""
