"""Postgres as the fold's store. Its SQL is in ``queries/`` and ``migrations/`` (``docs/reference/tables.md``)."""
