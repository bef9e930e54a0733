"""Schedules and triggers, directly on NATS and Postgres."""
