"""Answers clients and workers over NATS, each within its rights."""
