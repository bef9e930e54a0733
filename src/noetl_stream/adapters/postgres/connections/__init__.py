"""Connections to Postgres, by purpose."""
