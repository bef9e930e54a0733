"""JSON Schemas of task results: read, bounded, compiled, and compared with what templates read (LANGUAGE §10)."""
