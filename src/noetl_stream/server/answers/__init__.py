"""Answers to clients and workers over NATS, within the rights of each."""
