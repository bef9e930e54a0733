"""Executions, directly on NATS and Postgres."""
