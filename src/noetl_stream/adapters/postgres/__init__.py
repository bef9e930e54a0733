"""Postgres as the fold's store. Its SQL stands in files: ``queries/`` and ``migrations/`` (``docs/storage.md``)."""
