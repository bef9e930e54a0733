"""Responders: requests over NATS that any server answers."""
