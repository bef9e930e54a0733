"""The catalog, directly on Postgres."""
