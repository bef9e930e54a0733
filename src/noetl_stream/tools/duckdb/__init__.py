"""``kind: duckdb``."""
