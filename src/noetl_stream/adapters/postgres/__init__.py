"""The fold's store on Postgres. The SQL is in ``queries/`` and ``migrations/`` (``docs/reference/tables.md``)."""
