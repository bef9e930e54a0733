"""Connections to Postgres, each for its purpose."""
