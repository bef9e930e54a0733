"""Credentials, directly on Postgres."""
